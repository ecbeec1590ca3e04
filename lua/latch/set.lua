-- Set the latch, unless it is closed.
--
-- KEYS   see latch.lua
-- ARGV   ..., the request, how long the latch remembers it in ms, the count, its TTL in ms
-- Reply  1 set | 0 the latch is closed: callers may be waiting for it

local request, keep, wanted, ttl = ARGV[7], tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10])
if out_of_range(ttl) then return redis.error_reply('ERR TTL out of range') end

local was_done = is_done(request, keep)
if was_done or count and count > 0 then
  touch()
  return { was_done and 1 or 0 }
end
-- Redisson has no key for an open latch.
if GONE_IS_OPEN and tonumber(wanted) == 0 then
  redis.call('del', latch)
  tell('open')
else
  redis.call('set', latch, wanted, 'PX', ttl)
  if GONE_IS_OPEN then tell('set') end
end
done(request, keep)
return { 1 }
