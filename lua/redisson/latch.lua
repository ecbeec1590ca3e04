-- Redisson's RCountDownLatch. Redisson deletes it at zero, so a missing latch counts as open. The message on its channel is
-- '0' when it opens, and '1' when it is set or deleted.
--
-- KEYS   see lua/latch/latch.lua; then the requests that were carried out

local GONE_IS_OPEN = true
local requests = KEYS[3]

local function tell(what)
  redis.pcall('publish', ARGV[4], what == 'open' and '0' or '1')
end
