-- Give it back or leave the queue, and tell the next, if it is its turn.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field
-- Reply  1 given back | 0 it was not held (any more)
--
-- HDEL is allowed when memory is full, and after it everything is. Redisson's clients leave the queue only
-- at the end of a tryLock; if they are cancelled, they leave it to their deadline.

local field = ARGV[7]

local held = redis.pcall('hdel', lock, field)
local waited = redis.call('zrem', deadlines, field)
if held ~= 1 or waited == 1 then waited = waited + redis.call('lrem', queue, 0, field) end

local function tell_next()
  local head = head_of_queue()
  if head and redis.call('exists', lock) == 0 then tell(head) end
  keep()
end

if held == 1 or waited > 0 then pcall(tell_next) end
return type(held) == 'table' and held or { held }
