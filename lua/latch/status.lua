-- Report the remaining count.
--
-- KEYS   see latch.lua
-- ARGV   see latch.lua
-- Reply  its TTL in ms (-1: none; -2: there is no latch) | the count | 0

touch()
return { redis.call('pttl', latch), count or 0, 0 }
