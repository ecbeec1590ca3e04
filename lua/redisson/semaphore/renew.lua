-- Renew the permits of an owner to at least this long from now. A lease is never shortened.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., owner field, lease wanted in ms
-- Reply  1 renewed | 0 there is no lease any more

local field, wanted = ARGV[7], tonumber(ARGV[8])
if out_of_range(wanted) then return redis.error_reply('ERR lease out of range') end

touch() -- a replica refuses it: so "gone" always comes from a primary
local until_when = tonumber(redis.call('zscore', leases, field) or 0)
if until_when <= now then return { 0 } end
-- One that is long enough grows by a millisecond: on a new connection, WAIT counts the replicas that have what this connection has
-- written, and the same score again is no write.
lease(field, held_by(field), math.max(until_when + 1, now + wanted))
return { 1 }
