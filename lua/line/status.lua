-- Report how much is held, and for how long.
--
-- KEYS   see open_name.lua
-- ARGV   see open_name.lua
-- Reply  the longest lease left in ms (-1: another program has written the key, without a TTL; -2: there is no holder) |
--        how much is held | the capacity
--
-- A holder whose lease is over does not count, and makes room.

check_writable()
move_on()
local last = redis.call('zrange', lock, '+inf', '(' .. now, 'BYSCORE', 'REV', 'LIMIT', '0', '1', 'WITHSCORES')[2]
local left = is_foreign and redis.call('pttl', lock) or last and last - now or -2
return { left, used, capacity }
