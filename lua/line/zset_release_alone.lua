-- Release a hold without access to the line, which is at another node of the cluster: see line/plain_release_alone.lua, and
-- zset.lua for the holders.
--
-- KEYS   the holders
-- ARGV   owner field, channel, the client that publishes
-- Reply  1 it held the lock, and left | 0 it did not hold it, or not here: the field may still stand in the line

local lock, field, note = KEYS[1], ARGV[1], '=' .. ARGV[1]
redis.call('zrem', lock, 'parklock:nobody') -- changes nothing; a replica refuses it
if not redis.call('zscore', lock, field) then return 0 end

-- While the slot moves, a script that has emptied a key cannot access it again: so what remains is written first.
local first = redis.call('zrange', lock, '0', '0', 'WITHSCORES')
local part = redis.call('zscore', lock, note)
local others = redis.call('zcount', lock, '0', '+inf') - 1
if others == 0 then
  redis.call('del', lock)
else
  if first[1]:match('^#%a+ %d+$') then
    redis.call('zadd', lock, string.format('%.0f', first[2] + (part or -1)), first[1])
  end
  redis.call('zrem', lock, field, note)
end
redis.pcall('publish', ARGV[2], ARGV[3])
return 1
