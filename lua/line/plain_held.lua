-- What acquire_line_up.lua has to know of a plain lock.

-- For how much longer another client has the lock, in ms.
local function time_of_holder(lock, _, field)
  return redis.call('hexists', lock, field) == 0 and redis.call('pttl', lock)
end

-- The waiters behind the first one need not tell the keeper again.
local function begin_line(lock, channel, publisher)
  tell_keeper(lock, channel, publisher, WAITS)
  return true
end
