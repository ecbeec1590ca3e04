-- Take the lock away from its holder, and wake the waiters.
--
-- KEYS   the lock
-- ARGV   channel, message
-- Reply  1 it was held | 0 it was free
--        an error of CONFLICT: the name is that of a read-write lock

redis.call('hdel', KEYS[1], 'parklock:nobody') -- fails on another type, and on a replica
if redis.call('hexists', KEYS[1], 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
local gone = redis.call('del', KEYS[1])
if gone == 1 then redis.pcall('publish', ARGV[1], ARGV[2]) end
return { gone }
