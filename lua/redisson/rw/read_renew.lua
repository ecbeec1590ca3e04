-- Renew a reader to at least this long from now. A lease is never shortened.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field, lease wanted in ms
-- Reply  1 renewed | 0 it no longer reads
--
-- A reader without its key counts as dead to all others. So it leaves, although its field may still be in the lock.

local reader, wanted = ARGV[7], tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

confirm() -- also if each TTL is long enough: a replica refuses it, so "renewed" always comes from a primary
local left = redis.call('pttl', key_of(reader, 1))
if left < 0 or redis.call('hexists', lock, reader) == 0 then
  stop_reading(reader)
  return { 0 }
end
-- Renew the lock first: it must not expire before its reader.
local kept, refusal = keep(math.max(wanted, left))
if not kept then return redis.error_reply(refusal) end
if left < wanted then redis.call('pexpire', key_of(reader, 1), wanted) end
return { 1 }
