-- Let a holder hold at least so much longer. A lease is never shortened.
--
-- KEYS   see queue.lua
-- ARGV   ..., owner field, lease wanted in ms
-- Reply  1 renewed | 0 it holds no more

local field, wanted = ARGV[7], tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

-- Changes nothing; a replica refuses it, so "gone" is always a primary's word. After a write that needs
-- no memory, the others may.
redis.call('zrem', holders, 'parklock:nobody')
local until_when = tonumber(redis.call('zscore', holders, field) or 0)
if until_when <= now then return { 0 } end
redis.call('hdel', notes, 'place:' .. field) -- a grant that was told is confirmed
redis.call('zadd', holders, string.format('%.0f', math.max(until_when, now + wanted)), field)
settle()
return { 1 }
