-- Let a holder hold at least so much longer. A lease is never shortened.
--
-- KEYS   the token counter (not used), the holders
-- ARGV   see head.lua (not used), then: owner field, lease wanted in ms
-- Reply  1 renewed | 0 it holds no more
--
-- Who was granted it by a message confirms by this that it has heard of it.

local lock, field, wanted = KEYS[2], ARGV[7], tonumber(ARGV[8])
if not wanted or wanted < 1 or wanted > 86400000 then return redis.error_reply('ERR lease out of range') end

-- Changes nothing; a replica refuses it, so "gone" is always a primary's word. After a write that needs
-- no memory, the others may.
redis.call('zrem', lock, 'parklock:nobody')
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local until_when = tonumber(redis.call('zscore', lock, field) or 0)
if until_when <= now then return { 0 } end
if until_when < now + wanted then
  redis.call('zadd', lock, string.format('%.0f', now + wanted), field)
end
if redis.call('pttl', lock) < wanted then redis.call('pexpire', lock, ARGV[8]) end
return { 1 }
