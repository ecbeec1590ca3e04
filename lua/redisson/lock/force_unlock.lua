-- Take the lock away from whoever holds it, and wake those who wait for it.
--
-- KEYS   the lock
-- ARGV   channel, message
-- Reply  1 it was held | 0 it was free

redis.call('hdel', KEYS[1], 'parklock:nobody') -- only a hash, and only on a primary
local gone = redis.call('del', KEYS[1])
if gone == 1 then redis.pcall('publish', ARGV[1], ARGV[2]) end
return { gone }
