-- Report whether the lock is held, and for how long.
--
-- KEYS   see fair.lua
-- Reply  its TTL in ms (-1: held, without a TTL, -2: free) | 1 held, 0 free | 1, the capacity

redis.call('hdel', lock, 'parklock:nobody') -- changes nothing; a replica refuses it
local ttl = redis.call('pttl', lock)
return { ttl, ttl == -2 and 0 or 1, 1 }
