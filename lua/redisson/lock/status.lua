-- Report for how long the lock is still held, by any owner.
--
-- KEYS   the lock
-- Reply  its TTL in ms | -1 held, without a TTL | -2 free
--        an error of CONFLICT: the name is that of a read-write lock

redis.call('hdel', KEYS[1], 'parklock:nobody') -- changes nothing, and a replica refuses it
if redis.call('hexists', KEYS[1], 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
return { redis.call('pttl', KEYS[1]) }
