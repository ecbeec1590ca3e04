-- Whoever has passed a latch holds nothing: there is nothing to give back, nor to keep.
--
-- KEYS   see latch.lua
-- Reply  1

return { 1 }
