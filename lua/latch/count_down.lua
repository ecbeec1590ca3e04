-- Count down by one. If that opens the latch, notify the waiters.
--
-- KEYS   see latch.lua
-- ARGV   ..., the request, how long the latch remembers it in ms
-- Reply  the remaining count, which does not go below zero; for a request that was carried out before, the count now
--        an error of UNSET: the latch does not exist (native only)

local request, keep = ARGV[7], tonumber(ARGV[8])

touch()
-- Check this first: a caller that has passed may have deleted the latch since this request opened it.
if is_done(request, keep) then return { count or 0 } end
if not count then
  return GONE_IS_OPEN and { 0 } or redis.error_reply('UNSET there is no such latch')
end
done(request, keep)
if count == 0 then return { 0 } end
local left = redis.call('decr', latch)
if left == 0 then
  if GONE_IS_OPEN then redis.call('del', latch) end
  tell('open')
end
return { left }
