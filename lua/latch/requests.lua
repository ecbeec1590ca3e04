-- The requests that were carried out, so that each counts once, however often a client sends it. The key is an argument, since
-- the scripts have it in different places. The files before this one have to define `now`, the server's clock in ms.
--
-- ARGV   ..., the request, for how long it is remembered in ms
--
-- A client numbers its requests, and twenty of them share one member, `<client>#<number of the twenty>`: so a request
-- takes only a few bytes. The upper bits of the score say until when a request of the twenty may come again, in seconds
-- of the server's clock. The lower bits are one for each request. So expired members are found by their scores. They
-- stay until then, even if the latch is deleted or set again.

local request, keep = ARGV[7], tonumber(ARGV[8])
if not (request or ''):match(':%d+$') or not keep or keep < 1 then return redis.error_reply('ERR request out of range') end

local TOGETHER = 20
local MOST = 64 -- the most expired members that one call removes: more than calls can add
local ALL_DONE = 2 ^ TOGETHER -- with 32 bits of seconds above it, a score is exact until the year 2106

-- The member of the request, its bit, and the score of that member.
local function record_of(requests)
  local client, number = request:match('^(.*):(%d+)$')
  local member = string.format('%s#%.0f', client, math.floor(number / TOGETHER))
  return member, 2 ^ (number % TOGETHER), tonumber(redis.call('zscore', requests, member) or 0)
end

-- The requests are remembered for at least `keep` from now on.
local function remember(requests)
  redis.call('pexpire', requests, string.format('%.0f', math.max(redis.call('pttl', requests), keep)))
end

-- Whether the request was carried out before. If so, the key is written again: its client may wait until replicas have
-- its last write, and on a new connection only a write that was made there counts.
local function is_done(requests)
  local _, bit, score = record_of(requests)
  if math.floor(score / bit) % 2 == 0 then return false end
  remember(requests)
  return true
end

-- Records a request that was not carried out before, and calls a command that carries it out, if there is one: both or neither, since
-- a user may lack the permission for one of them. The record comes first: Redis refuses it if the memory is full, and allows
-- everything after it.
local function carry_out(requests, ...)
  local member, bit, score = record_of(requests)
  local seconds = math.max(math.floor(score / ALL_DONE), math.ceil((now + keep) / 1000))
  redis.call('zadd', requests,
    string.format('%.0f', seconds * ALL_DONE + score % ALL_DONE + bit), member)
  local fine, answer = pcall(function(...)
    remember(requests)
    local over = string.format('%.0f', math.floor(now / 1000) * ALL_DONE)
    local expired = redis.call('zrange', requests, '-inf', over, 'BYSCORE', 'LIMIT', '0', MOST)
    if #expired > 0 then redis.call('zrem', requests, unpack(expired)) end
    return (...) and redis.call(...)
  end, ...)
  if fine then return answer end
  if score > 0 then
    redis.call('zadd', requests, string.format('%.0f', score), member)
  else
    redis.call('zrem', requests, member)
  end
  error(answer, 0)
end
