-- Say how long the lock is still held, whoever holds it.
--
-- KEYS   the lock
-- Reply  its TTL in ms | -1 held, without a TTL | -2 free

redis.call('hdel', KEYS[1], 'parklock:nobody') -- changes nothing; a replica refuses it
return { redis.call('pttl', KEYS[1]) }
