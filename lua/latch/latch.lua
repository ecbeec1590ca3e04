-- The beginning of all scripts of this folder, after lua/lock/grant.lua and native.lua or lua/redisson/latch.lua. A latch is a
-- number that is counted down to zero, once for each request.
--
-- KEYS   the token counter (not used), the count, the requests that were carried out
-- ARGV   the floor of the counter, 'latch', its capacity (not used), channel, message, waiter_ttl in ms (not used), then what
--        the script asks for
--
-- Count     a number, with the TTL that it was set with; without a TTL, if Java set it
-- Requests  which requests were carried out. A client numbers its requests, and twenty of them share one member,
--           `<client>#<number of the twenty>`: so a request is remembered in a few bytes. The upper bits of the score say
--           until when a request of the twenty may come again, in seconds of the server's clock. The lower bits are one for
--           each request. So members that are over are found by their scores. They stay until then, even if the latch is
--           deleted or set anew.

local latch, requests = KEYS[2], KEYS[3]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Read before the first write: a key of another type is refused here.
local count = redis.call('get', latch)
redis.call('zcard', requests)
if count and not tonumber(count) then return redis.error_reply('CONFLICT value that is no number') end
count = tonumber(count)
if GONE_IS_OPEN and count and count <= 0 then count = 0 end

local TOGETHER = 20
local ALL_DONE = 2 ^ TOGETHER -- with 32 bits of seconds above it, a score is exact until the year 2106

-- The member of this request, its bit, and the score of that member.
local function record_of(request)
  local client, number = request:match('^(.*):(%d+)$')
  local member = string.format('%s#%.0f', client, math.floor(number / TOGETHER))
  return member, 2 ^ (number % TOGETHER), tonumber(redis.call('zscore', requests, member) or 0)
end

local function is_done(request)
  local _, bit, score = record_of(request)
  return math.floor(score / bit) % 2 == 1
end

-- Remembers a request that was not done before. Its first write needs no memory, and after it Redis allows the others.
local function done(request, keep)
  redis.call('zremrangebyscore', requests, '-inf',
    string.format('%.0f', math.floor(now / 1000) * ALL_DONE))
  local member, bit, score = record_of(request)
  local seconds = math.max(math.floor(score / ALL_DONE), math.ceil((now + keep) / 1000))
  redis.call('zadd', requests,
    string.format('%.0f', seconds * ALL_DONE + score % ALL_DONE + bit), member)
  if redis.call('pttl', requests) < keep then redis.call('pexpire', requests, keep) end
end

-- This changes nothing, and a replica refuses it.
local function touch()
  redis.call('zrem', requests, 'parklock:nobody')
end
