-- The third and last part of the release of plain locks, which begins in plain_release_uncontended.lua: whatever the first
-- two have not answered. Clients wait for these locks, or the holds are gone.

from, waiter_ttl = publisher, tonumber(waiter_ttl_text)
if out_of_range(waiter_ttl) then return redis.error_reply('ERR waiter_ttl out of range') end

local function release(i, field)
  lock, line, notes = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  channel = channels .. lock:match('{.*')
  local gone = given_back[i] or redis.call('hdel', lock, field)
  given_back[i] = gone
  if not is_waited_for and redis.call('exists', line) == 0 then
    -- Our hold is gone, perhaps without a release, and the line with it: somebody deleted the keys, or a replica
    -- without them was promoted. In that case nobody has notified the waiters, and they would sleep for a long time.
    if gone == 0 and redis.call('exists', lock) == 0 then redis.pcall('publish', channel, from) end
    return gone
  end
  -- The release of an acquire that was refused finds the line of another kind, whose waiters a plain lock must not let in.
  local known = open()
  if known and known ~= kind then return gone end
  if gone == 0 and stands(field) then withdraw(read({ field })) end
  -- Do this even if the lock was not ours: if it is gone without a release, the head of the line gets it now.
  pcall(admit)
  settle()
  return is_unfinished and -1 - gone or gone
end

-- An error of one lock is reported for that lock alone. If its hold is released already, the reply says so: the client must
-- not take the hold for lost. While its slot moves, a script that has emptied a key cannot use it again: the client takes
-- that error for the end of its hold, so the script does not report it if there was no hold.
local reply = {}
for i = 1, (#KEYS - 1) / 3 do
  local fine, gone = pcall(release, i, ARGV[i + 1])
  if not fine then
    local problem = type(gone) == 'table' and gone.err or tostring(gone)
    gone = given_back[i] == 1 and 'HALFRUN ' .. problem
      or given_back[i] == 0 and problem:find('non local key', 1, true) and 0 or problem
  end
  reply[i] = gone
end
return reply
