-- Release a hold, or leave the line, and let in waiters from the front of the line.
--
-- KEYS   see open_name.lua
-- ARGV   ..., owner field, and the owner fields of the callers to which the client has handed this hold on: they still stand
--        in line, and have had their turns. At most BOUND of them
-- Reply  alone or in a table: 1 the hold was released | 0 there was no hold (any more) | -2, -1: the same, and the line is not
--        done: the client has to release once more
--
-- Redis allows ZREM when its memory is full, and then every write of this script.

local field = ARGV[7]
check_writable()
local was_empty = nobody_is_left()
local left = end_hold(field)
if not left and stands(field) then withdraw(read({ field })) end
if ARGV[8] then
  local had, places = {}, redis.call('zmscore', line, unpack(ARGV, 8))
  for i, place in ipairs(places) do
    -- If this hold was lost, the server may have granted it to one of them.
    if place then had[#had + 1] = ARGV[7 + i] else end_hold(ARGV[7 + i]) end
  end
  withdraw(read(had))
end
pcall(admit)
local fine, problem = pcall(settle)
if not fine then
  problem = type(problem) == 'table' and problem.err or tostring(problem)
  -- While its slot moves, a script that has emptied a key cannot use it again: the client takes that error for the end of its
  -- hold, so the script does not report it if there was no hold.
  if left or not problem:find('non local key', 1, true) then
    return redis.error_reply((left and 'HALFRUN ' or '') .. problem)
  end
end
-- There was neither a holder nor a line: both were lost without a release, and nobody has notified the waiters.
if was_empty then redis.pcall('publish', channel, from) end
local reply = left and 1 or 0
return { is_unfinished and -1 - reply or reply }
