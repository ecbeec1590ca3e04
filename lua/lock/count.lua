-- Write the hold count of a live tenure, and extend the tenure to at least its lease from now.
--
-- KEYS   the lock
-- ARGV   owner field, hold count (1 or more), lease in ms
-- Reply  1 written | 0 the tenure is gone, nothing was changed
--
-- It writes the count and does not add to it: a script that runs twice changes nothing more. `engine/holding.rs` decides
-- the count.

local count, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
if not count or count < 1 then return redis.error_reply('ERR count out of range') end
if not lease or lease < 1 or lease > 86400000 then return redis.error_reply('ERR lease out of range') end

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('hdel', KEYS[1], 'parklock:nobody') -- a replica refuses it: so "gone" comes from a primary
  return { 0 }
end
-- The expiry comes first. It needs no memory, and if Redis refuses it, nothing has changed.
redis.call('pexpire', KEYS[1], math.max(lease, redis.call('pttl', KEYS[1])))
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
return { 1 }
