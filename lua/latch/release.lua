-- A caller that has passed a latch holds nothing, so there is nothing to release or renew.
--
-- KEYS   see latch.lua
-- Reply  1

return { 1 }
