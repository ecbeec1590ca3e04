-- The beginning of all scripts in this folder but release.lua, after lua/lock/draw.lua and latch.lua of lua/line/ or lua/redisson/. A
-- latch is a number that is counted down to zero, once for each request.
--
-- KEYS   the token counter (not used), the count, and others: see those two
-- ARGV   the floor of the counter, 'latch', its capacity (not used), channel, message, waiter_ttl in ms (not used), then what
--        the script asks for
--
-- Count     a number, with the TTL that it was set with; without a TTL if Java set it
-- Requests  see requests.lua

local latch = KEYS[2]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Read before the first write: a key of another type is refused here.
local count = redis.call('get', latch)
redis.call('zcard', requests)
-- Redis refuses to count down what only Lua takes for a number, such as 007.
if count and count ~= '0' and (#count > 16 or not count:match('^%-?[1-9]%d*$')) then
  return redis.error_reply('CONFLICT value that is no number')
end
count = tonumber(count)
if count and count <= 0 then count = 0 end

-- This changes nothing, and a replica refuses it.
local function touch()
  redis.call('zrem', requests, 'parklock:nobody')
end
