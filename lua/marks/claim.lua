-- Claim an interval, if the caller holds the lock and no claimed interval is still running.
--
-- KEYS   the lock, the mark of the interval
-- ARGV   owner field, token of the hold, the interval in ms
-- Reply  0 claimed, from now on, also if an earlier request of the same hold has claimed it | n the interval of another hold lasts this many ms
--        | -1 the lock is not ours any more

local lock, mark = KEYS[1], KEYS[2]
local field, token, interval = ARGV[1], ARGV[2], ARGV[3]

-- Changes nothing, and a replica refuses it: so every answer comes from a primary.
redis.call('hdel', lock, 'parklock:nobody')
if redis.call('hexists', lock, field) == 0 then return { -1 } end
-- The token, not the owner field: a client hands the lock from hold to hold under one owner field.
local claimed = redis.call('get', mark)
-- The answer to an earlier request was lost. The run begins when this answer arrives, so the interval begins now. It is written
-- again for replicas, too: on a new connection the client waits only for what was written there.
if not claimed or claimed == token then
  redis.call('set', mark, token, 'px', interval)
  return { 0 }
end
local left = redis.call('pttl', mark)
-- Another program wrote it, without a TTL, or the period has become shorter since.
if left < 0 or left > tonumber(interval) then
  redis.call('pexpire', mark, interval)
  left = tonumber(interval)
end
return { math.max(left, 1) }
