-- parklock's own latch. At zero it stays in Redis, open, until its lease is over. A missing latch does not count as
-- open: so nobody mistakes the end of a lease for a success.
--
-- KEYS   see latch.lua

local GONE_IS_OPEN = false

local function tell(_)
  redis.pcall('publish', ARGV[4], ARGV[5])
end
