-- Report for how long a lock is still held, by any owner: a plain lock, or Redisson's fair lock.
--
-- KEYS   the lock
-- Reply  its TTL in ms | -1 held, without a TTL | -2 free
--        an error of CONFLICT: the name is that of Redisson's read-write lock, which is a hash too

redis.call('hdel', KEYS[1], 'parklock:nobody') -- changes nothing; fails on another type, and on a replica
if redis.call('hexists', KEYS[1], 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
return { redis.call('pttl', KEYS[1]) }
