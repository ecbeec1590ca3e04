-- Renew a writer: it lasts at least this long from now. A lease is never shortened.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field, lease wanted in ms
-- Reply  1 renewed | 0 it writes no more

local wanted = tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

if redis.call('hexists', lock, ARGV[7] .. ':write') == 0 then
  confirm()
  return { 0 }
end
local kept, refusal = keep(wanted)
if not kept then return redis.error_reply(refusal) end
return { 1 }
