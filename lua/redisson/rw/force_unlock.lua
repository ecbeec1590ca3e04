-- Take the lock away from all readers and writers, and notify the waiters.
--
-- KEYS   see rw.lua
-- ARGV   see rw.lua
-- Reply  how many holders there were
--        an error of CONFLICT: the name is that of a plain lock
--
-- Without the lock, the keys of its readers mean nothing.

if is_strange() then return conflict() end
confirm()
local holders = math.max(0, redis.call('hlen', lock) - 1)
if mode then free(ALL) end
return { holders }
