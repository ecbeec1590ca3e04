-- Renew each hold that is still ours, or each notification, to at least this long from now, and write its hold count if it has
-- changed. A TTL is never shortened.
--
-- KEYS   the holders of each lock
-- ARGV   for each lock: owner field, with ':write' after it for a writer of Redisson's (see redisson/rw/rw.lua); TTL wanted in ms, with
--        ' set' after it if the holders are a sorted set (see line/zset.lua), or a blank and the hold count of a plain lock
-- Reply  for each lock: 1 renewed | 0 not ours any more | text: refused, nothing was changed
--
-- A client that got its grant by a message uses this script to confirm that it received the grant. The count is written and not
-- added to: a script that runs twice changes nothing more. `engine/holding.rs` decides the count.

local LONGEST_LEASE = 86400000 -- 24 h

-- The writes to 'parklock:nobody' change nothing, and a replica refuses them: so "gone" always comes from a primary. They need no
-- memory, and after them Redis allows the writes that do.
local function renew_in_hash(lock, field, ms, count)
  if redis.call('hexists', lock, field) == 0 then
    redis.call('hdel', lock, 'parklock:nobody')
    return 0
  end
  -- The expiry comes first. It needs no memory, and if Redis refuses it, nothing has changed.
  redis.call('pexpire', lock, math.max(ms, redis.call('pttl', lock)))
  if count ~= '' then redis.call('hset', lock, field, count) end
  return 1
end

local function renew_in_set(lock, field, ms)
  redis.call('zrem', lock, 'parklock:nobody')
  local time = redis.call('time')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local until_when = tonumber(redis.call('zscore', lock, field) or 0)
  if until_when <= now then return 0 end
  if until_when < now + ms then redis.call('zadd', lock, string.format('%.0f', now + ms), field) end
  local ttl = redis.call('pttl', lock)
  -- Somebody has persisted the key. Other holds may last longer than this one.
  if ttl < 0 then ttl = redis.call('zrange', lock, '-1', '-1', 'WITHSCORES')[2] - now end
  -- Written in any case: on a new connection, WAIT counts the replicas that have what this connection has written.
  redis.call('pexpire', lock, math.max(ms, ttl))
  return 1
end

-- An error of one lock is reported for that lock alone.
local reply = {}
for i = 1, #KEYS do
  local wanted, more = (ARGV[2 * i] or ''):match('^(%d+) ?(.*)$')
  local ms = tonumber(wanted or nil)
  if not ms or ms < 1 or ms > LONGEST_LEASE then
    reply[i] = 'ERR lease out of range'
  else
    local fine, answer = pcall(more == 'set' and renew_in_set or renew_in_hash, KEYS[i], ARGV[2 * i - 1], ms, more)
    reply[i] = fine and answer or type(answer) == 'table' and answer.err or tostring(answer)
  end
end
return reply
