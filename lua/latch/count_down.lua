-- Count down by one. If that opens the latch, notify the waiters.
--
-- KEYS   see latch.lua
-- ARGV   ..., the request, how long the latch remembers it in ms
-- Reply  the remaining count; it does not go below zero
--        an error of UNSET: the latch does not exist (native only)

local request, keep = ARGV[7], tonumber(ARGV[8])

touch()
if not count and not GONE_IS_OPEN then return redis.error_reply('UNSET there is no such latch') end
if not count or is_done(request) then return { count or 0 } end
done(request, keep)
if count == 0 then return { 0 } end
local left = redis.call('decr', latch)
if left == 0 then
  if GONE_IS_OPEN then redis.call('del', latch) end
  tell('open')
end
return { left }
