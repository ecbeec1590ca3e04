-- parklock's own latch. At zero it stays in Redis, open, until its lease is over. A missing latch does not count as
-- open: so nobody mistakes the end of a lease for a success.
--
-- KEYS   see lua/latch/latch.lua; then the line and the notes of another kind, and the requests that were carried out

local GONE_IS_OPEN = false
local requests = KEYS[5]

-- Somebody waits for the name as another kind. A condition has waiters, and no holder whose key would be of another type.
if redis.call('exists', KEYS[3]) == 1 then
  local noted = redis.call('hmget', KEYS[4], 'kind')[1]
  return redis.error_reply('CONFLICT ' .. ((noted or ''):match('^%a+ %d+$') or 'line'))
end

local function tell(_)
  redis.pcall('publish', ARGV[4], ARGV[5])
end
