-- What acquire_line_up.lua has to know of a plain lock.

-- For how much longer another client has the lock, in ms.
local function time_of_holder()
  return redis.call('hexists', KEYS[2], ARGV[4]) == 0 and redis.call('pttl', KEYS[2])
end

-- The waiters behind the first one need not tell the keeper again.
local function begin_line(channel, publisher)
  tell_keeper(KEYS[2], channel, publisher, WAITS)
  return true
end
