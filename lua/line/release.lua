-- Release holds, or leave the lines, and let in waiters from the front of each line. See release_args.lua for KEYS, ARGV and the
-- reply.

from, waiter_ttl = publisher, tonumber(waiter_ttl_text)

-- Returns the answer, or nil and the reason why there is none.
local function release(i)
  local field = ARGV[2 * i + 1] or ''
  lock, line, notes = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  channel = channels .. lock:match('{.*')
  kind, capacity = (ARGV[2 * i] or ''):match('^(%a+) (%d+)$')
  capacity, others_set = tonumber(capacity or nil), false
  local refused = settle_kind()
  if refused then return nil, refused end
  check_writable()
  local was_empty = nobody_is_left()
  local left = end_hold(field)
  if not left and stands(field) then withdraw(read({ field })) end
  if locks == 1 and ARGV[4] then
    local had, places = {}, redis.call('zmscore', line, unpack(ARGV, 4))
    for n, place in ipairs(places) do
      -- If this hold was lost, the server may have granted it to one of them.
      if place then had[#had + 1] = ARGV[3 + n] else end_hold(ARGV[3 + n]) end
    end
    withdraw(read(had))
  end
  pcall(admit)
  local fine, problem = pcall(settle)
  if not fine then
    problem = type(problem) == 'table' and problem.err or tostring(problem)
    -- While its slot moves, a script that has emptied a key cannot use it again: the client takes that error for the end of its
    -- hold, so the script does not report it if there was no hold.
    if left or not problem:find('non local key', 1, true) then return nil, (left and 'HALFRUN ' or '') .. problem end
  end
  -- There was neither a holder nor a line: both were lost without a release, and nobody has notified the waiters.
  if was_empty then redis.pcall('publish', channel, from) end
  local reply = left and 1 or 0
  return is_unfinished and -1 - reply or reply
end

-- An error of one lock is reported for that lock alone.
for i = 1, locks do
  if not given_back[i] then
    local fine, answer, refused = pcall(release, i)
    if not fine then refused = type(answer) == 'table' and answer.err or tostring(answer) end
    given_back[i] = fine and answer or refused
  end
end
return given_back
