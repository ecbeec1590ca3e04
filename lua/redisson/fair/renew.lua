-- Extend the hold to at least this long from now. A TTL is never shortened.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field, TTL wanted in ms
-- Reply  1 renewed | 0 it is no longer held

local field, wanted = ARGV[7], tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

if redis.call('hexists', lock, field) == 0 then
  redis.call('hdel', lock, 'parklock:nobody') -- a replica refuses it, so "gone" always comes from a primary
  return { 0 }
end
local before = math.max(0, redis.call('pttl', lock))
redis.call('pexpire', lock, math.max(wanted, before))
pcall(move, 0, math.max(wanted, before) - before)
pcall(keep)
return { 1 }
