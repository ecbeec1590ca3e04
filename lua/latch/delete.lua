-- Delete the latch, and notify the waiters.
--
-- KEYS   see latch.lua
-- ARGV   ..., the request, how long the latch remembers it in ms
-- Reply  1 deleted | 0 there was none

local request, keep = ARGV[7], tonumber(ARGV[8])

touch()
if is_done(request, keep) then return { 1 } end
if redis.call('del', latch) == 0 then return { 0 } end
done(request, keep)
tell('deleted')
return { 1 }
