-- Report whether the latch is open.
--
-- KEYS   see latch.lua
-- ARGV   see latch.lua; it uses none of what follows waiter_ttl
-- Reply  1, 0            the latch is open
--        0, TTL in ms    the latch is closed, for at most this long; a day if it has no TTL
--        an error of UNSET: the latch does not exist (native only)

touch()
if not count and not GONE_IS_OPEN then return redis.error_reply('UNSET there is no such latch') end
if not count or count == 0 then return { GRANTED, 0 } end
local ttl = redis.call('pttl', latch)
return { HELD, ttl < 0 and LONGEST_LEASE or math.max(1, ttl) }
