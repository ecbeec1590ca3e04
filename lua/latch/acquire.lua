-- Say whether the latch is open.
--
-- KEYS   see latch.lua
-- ARGV   see latch.lua; whoever asks is not written down
-- Reply  1, 0            it is
--        0, TTL in ms    it is closed, for so long at the most; a day if it has no TTL
--        an error of UNSET: it is not there (native only)

touch()
if not count and not GONE_IS_OPEN then return redis.error_reply('UNSET there is no such latch') end
if not count or count == 0 then return { GRANTED, 0 } end
local ttl = redis.call('pttl', latch)
return { HELD, ttl < 0 and LONGEST_LEASE or math.max(1, ttl) }
