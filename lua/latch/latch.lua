-- What the scripts of this folder begin with, after lua/lock/grant.lua and native.lua or
-- lua/redisson/latch.lua: a number that is counted down to zero, once for each request.
--
-- KEYS   the token counter (not used), the count, the requests that were carried out
-- ARGV   the floor of the counter, 'latch', its capacity (not used), channel, message, how long a place outlives its last
--        sign of life (not used), then what the script asks for
--
-- Count     a number, with the TTL that it was set with; without one, if Java set it
-- Requests  owner field -> until when it may come again, in ms of the server's clock. Each was carried out,
--           and is kept for so long, whatever becomes of the count and whoever else asks.

local latch, requests = KEYS[2], KEYS[3]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Before anything is written: another type is refused here.
local count = redis.call('get', latch)
redis.call('zcard', requests)
if count and not tonumber(count) then return redis.error_reply('CONFLICT value that is no number') end
count = tonumber(count)
if GONE_IS_OPEN and count and count <= 0 then count = 0 end

local function is_done(request)
  return redis.call('zscore', requests, request)
end

-- Its first write needs no memory, and after it everything is allowed.
local function done(request, keep)
  redis.call('zremrangebyscore', requests, '-inf', now)
  redis.call('zadd', requests, now + keep, request)
  if redis.call('pttl', requests) < keep then redis.call('pexpire', requests, keep) end
end

-- Changes nothing; a replica refuses it.
local function touch()
  redis.call('zrem', requests, 'parklock:nobody')
end
