-- Release a plain lock without access to its line, which is at another node of the cluster: the slot of both is being
-- moved there key by key, and no script can access both. All waiters are notified, and ask until the slot has moved.
--
-- KEYS   the lock
-- ARGV   owner field, channel, the client that publishes
-- Reply  1 released | 0 not ours, or not here: the field may still stand in the line

local gone = redis.call('hdel', KEYS[1], ARGV[1])
if gone == 1 then redis.pcall('publish', ARGV[2], ARGV[3]) end
return gone
