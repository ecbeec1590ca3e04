-- Report for how long the lock is still held, by any owner.
--
-- KEYS   the lock
-- Reply  its TTL in ms | -1 held, without a TTL | -2 free

redis.call('hdel', KEYS[1], 'parklock:nobody') -- changes nothing, and a replica refuses it
return { redis.call('pttl', KEYS[1]) }
