-- What the others left: several locks, or one that is waited for.

from, waiter_ttl = publisher, tonumber(waiter_ttl_text)
if not waiter_ttl or waiter_ttl < 1 then return redis.error_reply('ERR waiter_ttl out of range') end

local function release(i, field)
  lock, line, notes = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  channel = channels .. lock:sub(#'lock:' + 1)
  local gone = given_back or redis.call('hdel', lock, field)
  if not is_waited_for and redis.call('exists', line) == 0 then
    -- A lock that is not ours any more may have gone without a release, and perhaps the line with it: it was deleted, or a
    -- replica that had never heard of it took over. Nobody has told those who waited, and they would sleep for long.
    if gone == 0 and redis.call('exists', lock) == 0 then redis.pcall('publish', channel, from) end
    return gone
  end
  open()
  if gone == 0 and stands(field) then leave(read({ field })[1]) end
  -- Also if it was not ours: if it went without a release, the next one has it now.
  pcall(admit)
  settle()
  return gone
end

-- Whatever goes wrong with one lock is said of that one alone.
local reply = {}
for i = 1, (#KEYS - 1) / 3 do
  local fine, gone = pcall(release, i, ARGV[i + 1])
  if not fine then gone = type(gone) == 'table' and gone.err or tostring(gone) end
  reply[i] = gone
end
return reply
