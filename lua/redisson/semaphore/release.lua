-- Release the permits of one owner, all at once, and notify the waiters.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., owner field
-- Reply  1 released | 0 there was no lease (any more)
--
-- Redis allows ZREM when its memory is full, and then every write of this script.

touch()
local permits = forget(ARGV[7])
give_back(permits)
pcall(reap)
if available then
  tell()
else
  -- Somebody deleted the semaphore. The next waiter of ours that asks sets it again.
  redis.pcall('publish', channel, ARGV[3])
end
return { permits > 0 and 1 or 0 }
