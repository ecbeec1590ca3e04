-- Say how much is held, and for how long.
--
-- KEYS   see queue.lua
-- ARGV   see queue.lua
-- Reply  the longest lease left in ms (-2: nobody holds) | how much is held, of how much
--
-- Whose lease is over does not count, and makes room.

redis.call('zrem', holders, 'parklock:nobody') -- changes nothing; a replica refuses it
admit()
settle()
local last = redis.call('zrange', holders, -1, -1, 'WITHSCORES')[2]
return { last and math.max(1, last - now) or -2, used, capacity }
