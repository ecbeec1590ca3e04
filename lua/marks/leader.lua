-- Report the leader: the mark of the leader, if it still holds the lock.
--
-- KEYS   the lock, the mark of its leader
-- Reply  the mark (see announce.lua) | nil: nobody leads, or the leader has not written its mark yet

local lock, mark = KEYS[1], KEYS[2]

redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
local text = redis.call('get', mark)
local field = text and string.match(text, '^%d+ (%S+) ')
if not field or redis.call('hexists', lock, field) == 0 then return {} end
return { text }
