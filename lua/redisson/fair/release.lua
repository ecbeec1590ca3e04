-- Give it back or leave the queue, and tell the next, if it is its turn.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field
-- Reply  1 given back | 0 it was not held (any more)
--
-- HDEL is allowed when memory is full, and after it everything is. Redisson's clients leave the queue only
-- at the end of a tryLock; if they are cancelled, they leave it to their deadline.

local field = ARGV[7]

local rest = redis.call('pttl', lock)
local held = redis.pcall('hdel', lock, field)
local waits = redis.call('zscore', deadlines, field)
local waited = (held ~= 1 or waits) and leave(field)

local function tell_next()
  -- The rest of the lease is nobody's: the first in the queue is waited for from now on.
  if held == 1 and rest > 0 and redis.call('exists', lock) == 0 then move(0, -rest) end
  local head = head_of_queue()
  if head and redis.call('exists', lock) == 0 then tell(head) end
  keep()
end

if held == 1 or waited then pcall(tell_next) end
return type(held) == 'table' and held or { held }
