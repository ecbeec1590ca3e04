-- Release the lock or leave the queue, and notify the next waiter if it is its turn.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field
-- Reply  1 released | 0 it was not held (any more)
--
-- HDEL is allowed when memory is full, and then every write is. Redisson's clients leave the queue only at the end of a
-- tryLock; if they are cancelled, they stay in it until their deadline.

local field = ARGV[7]

local rest = redis.call('pttl', lock)
local held = redis.pcall('hdel', lock, field)
-- The lock is released, even if a key beside it is of another type.
local _, waited = pcall(function()
  return (held ~= 1 or redis.call('zscore', deadlines, field)) and leave(field)
end)

local function tell_next()
  -- The rest of the lease is not used: the deadline of the first waiter in the queue counts from now on.
  if held == 1 and rest > 0 and redis.call('exists', lock) == 0 then move(0, -rest) end
  local head = head_of_queue()
  if head and redis.call('exists', lock) == 0 then tell(head) end
  keep()
end

-- If the lock has gone without a release, nobody has notified the next waiter: see tell_if_gone() of lua/redisson/rw/rw.lua.
if held == 1 or waited or redis.call('exists', lock) == 0 then pcall(tell_next) end
return type(held) == 'table' and held or { held }
