-- Use up a notification: its waiter has had the lock again.
--
-- KEYS   see open_name.lua
-- ARGV   ..., owner field
-- Reply  1 it was there | 0 it was not there (any more): it may have gone to the next waiter

check_writable()
local gone = redis.call('zrem', lock, ARGV[7], '=' .. ARGV[7])
move_on()
return { gone > 0 and 1 or 0 }
