-- Renew a hold of a fair lock, a read-write lock or a semaphore, or a notification: it lasts at least this long from now. A
-- lease is never shortened. For plain locks, see lua/lock/renew.lua.
--
-- KEYS   the token counter (not used), the holders
-- ARGV   see open_name.lua (not used), then: owner field, lease wanted in ms
-- Reply  1 renewed | 0 there is no such hold any more
--
-- A client that got its grant by a message uses this script to confirm that it received the grant.

local lock, field, wanted = KEYS[2], ARGV[7], tonumber(ARGV[8])
if not wanted or wanted < 1 or wanted > 86400000 then return redis.error_reply('ERR lease out of range') end

-- This write changes nothing, and a replica refuses it: so "gone" always comes from a primary. It needs no memory, and
-- after it Redis allows the writes that do.
redis.call('zrem', lock, 'parklock:nobody')
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local until_when = tonumber(redis.call('zscore', lock, field) or 0)
if until_when <= now then return { 0 } end
if until_when < now + wanted then
  redis.call('zadd', lock, string.format('%.0f', now + wanted), field)
end
-- Written in any case: on a new connection, WAIT counts the replicas that have what this connection has written.
redis.call('pexpire', lock, math.max(wanted, redis.call('pttl', lock)))
return { 1 }
