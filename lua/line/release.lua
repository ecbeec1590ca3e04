-- Release holds, or leave the lines, and let in waiters from the front of each line. See release_args.lua and
-- plain_release_uncontended.lua for KEYS, ARGV and the reply.

from, waiter_ttl = publisher, tonumber(waiter_ttl_text)

-- Two locals are arguments here: a function costs more for each local from the beginning of a long script that it uses.
local function release(i, is_plain, left)
  local field = is_plain and ARGV[i + 1] or ARGV[2 * i + 1] or ''
  lock, line, notes = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  channel = channels .. lock:match('{.*')
  if is_plain then
    -- The release comes before the first look at the notes, which may be of any type.
    left[i] = left[i] or redis.call('hdel', lock, field)
    -- Without a line, nothing else is read. The reason for the message is below.
    if not is_waited_for and redis.call('exists', line) == 0 then
      if left[i] == 0 and redis.call('exists', lock) == 0 then redis.pcall('publish', channel, from) end
      return left[i]
    end
    if out_of_range(waiter_ttl) then error('ERR waiter_ttl out of range', 0) end
    -- The line may be that of another kind, whose waiters a plain lock must not let in.
    local known = open()
    if known and known ~= kind then return left[i] end
  else
    kind, capacity = (ARGV[2 * i] or ''):match('^(%a+) (%d+)$')
    capacity, others_set = tonumber(capacity or nil), false
    local refused = settle_kind()
    if refused then return refused end
    check_writable()
    left[i] = end_hold(field) and 1 or 0
  end
  if left[i] == 0 then
    -- If there is neither a holder nor a line, both were lost without a release, and nobody has notified the waiters.
    if redis.call('exists', lock, line) == 0 then redis.pcall('publish', channel, from) end
    if redis.call('zscore', line, field) then withdraw(read({ field })) end
  end
  if #KEYS == 4 and ARGV[4] then
    local had, places = {}, redis.call('zmscore', line, unpack(ARGV, 4))
    for n, place in ipairs(places) do
      -- If this hold was lost, the server may have granted it to one of them.
      if place then had[#had + 1] = ARGV[3 + n] else end_hold(ARGV[3 + n]) end
    end
    withdraw(read(had))
  end
  -- Do this even if there was no hold: if it is gone without a release, the head of the line gets it now.
  pcall(admit)
  settle()
  return is_unfinished and -1 - left[i] or left[i]
end

-- An error of one lock is reported for that lock alone. If its hold is released already, the answer says so: the client must not
-- take the hold for lost. While its slot moves, a script that has emptied a key cannot use it again: the client takes that error
-- for the end of its hold, so the script does not report it if there was no hold.
for i = 1, locks do
  if not given_back[i] then
    local fine, answer = pcall(release, i, is_plain, left)
    if not fine then
      local problem = type(answer) == 'table' and answer.err or tostring(answer)
      answer = left[i] == 1 and 'HALFRUN ' .. problem or left[i] == 0 and problem:find('non local key', 1, true) and 0 or problem
    end
    given_back[i] = answer
  end
end
return given_back
