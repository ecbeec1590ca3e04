-- Renew a writer to at least this long from now. A lease is never shortened.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field, lease wanted in ms
-- Reply  1 renewed | 0 it no longer writes

local wanted = tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

confirm() -- also if the TTL is long enough: a replica refuses it, so "renewed" always comes from a primary
if redis.call('hexists', lock, ARGV[7] .. ':write') == 0 then return { 0 } end
local kept, refusal = keep(wanted)
if not kept then return redis.error_reply(refusal) end
return { 1 }
