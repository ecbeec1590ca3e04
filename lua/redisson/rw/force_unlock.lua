-- Take it away from all who read or write, and tell those who wait.
--
-- KEYS   see rw.lua
-- ARGV   see rw.lua
-- Reply  how many had it
--        an error of CONFLICT: the name is that of a plain lock
--
-- The keys of the readers mean nothing without it.

if is_strange() then return conflict() end
confirm()
local holders = math.max(0, redis.call('hlen', lock) - 1)
if mode then free(ALL) end
return { holders }
