-- Give plain locks back, whatever their hold count, and leave their lines. Whoever is next in line has the lock then, and
-- is told.
--
-- KEYS   the token counter, then for each lock: the lock, its line, its notes
-- ARGV   in one word, since each argument costs the server time: the floor of the counter, for how long after a sign of
--        life a client counts as alive in ms, who publishes, and what the channels of all these locks begin with, to be
--        followed by what follows `lock:` in their keys; then for each lock: owner field
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed. For one lock that nobody
--        waits for, the number alone
--
-- HDEL is allowed when memory is full, and after it everything is. A publish that the server's ACL forbids must not turn
-- a release that happened into an error.

-- One lock that nobody waits for: straight on, before any function is made.
local is_waited_for = #KEYS == 4 and redis.pcall('exists', KEYS[3]) ~= 0
if #KEYS == 4 and not is_waited_for then
  local gone = redis.pcall('hdel', KEYS[2], ARGV[2])
  if gone == 1 then return 1 end
  if type(gone) == 'table' then return { gone.err } end
end

local floor_text, waiter_ttl_text, publisher, channels = (ARGV[1] or ''):match('^(%d+) (%d+) (%S+) (%S+)$')
ARGV[1] = floor_text -- as the other scripts have it

