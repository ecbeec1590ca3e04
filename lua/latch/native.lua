-- Our own latch: at zero it stays, open, until its time is over, and one that is not there was never
-- set. So an expiry is not taken for a success.
--
-- KEYS   see latch.lua

local GONE_IS_OPEN = false

local function tell(_)
  redis.pcall('publish', ARGV[4], ARGV[5])
end
