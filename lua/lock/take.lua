-- What acquire.lua and exchange.lua go on with: how a lock is taken that others may hold or wait for.
--
-- ARGV   after the floor: how long a line outlives its last sign of life, in ms; our client ('': there
--        are no lines, and what stands in the place of a line's key is not looked at)

local client = ARGV[3]

local function grant(lock, field, lease)
  local number, err = draw(1)
  if not number then return REFUSED, err end
  return put(lock, field, lease, number)
end

-- A write that changes nothing: a replica refuses it, so what follows is always a primary's word.
local function refusal(lock)
  local write = redis.pcall('hdel', lock, 'parklock:nobody')
  return type(write) == 'table' and write.err
end

-- Enters a client behind those who came before it; one that is in the line keeps its place. Whether
-- it stands there now.
local function line_up(line)
  local time = redis.pcall('time')
  if time.err then return false end
  local added = redis.pcall('zadd', line, 'NX', time[1] * 1000000 + time[2], client)
  if type(added) == 'table' then return false end
  -- Each client brings a TTL of its own. A shorter one must not end the line of those who look less often.
  local ttl = math.max(ARGV[2], redis.call('pttl', line))
  if redis.pcall('pexpire', line, ttl) == 1 then return true end
  redis.pcall('zrem', line, client)
  return false
end

-- A free lock that others wait for: the head of the line may have it, and whoever has waited for a
-- head that did not come, which then leaves the line.
local function take_in_line(lock, line, field, lease, manner)
  if client == '' then return grant(lock, field, lease) end
  local head = redis.call('zrange', line, 0, 0)[1]
  local yields = manner == 'look' or manner == 'wait'
  if head and head ~= client and yields then return RESERVED, 0 end
  local code, value = grant(lock, field, lease)
  if code == GRANTED then
    redis.pcall('zrem', line, client)
    if head and (manner == 'insist' or manner == 'overtake') then redis.pcall('zrem', line, head) end
  end
  return code, value
end

-- Manner: 'look' | 'wait': line up if it is not ours yet | 'insist': as wait, but the head of the line was
-- given its time and did not come | 'overtake': as insist, without lining up | 'once': as overtake, but the
-- head was not given any time, and so keeps its place.
local function attempt(lock, line, field, lease, manner)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if redis.call('exists', lock, line) == 0 then return grant(lock, field, lease) end
  local err = refusal(lock)
  if err then return REFUSED, err end
  local code, value = HELD, redis.call('pttl', lock)
  if value == -2 then
    code, value = take_in_line(lock, line, field, lease, manner)
  elseif redis.call('hexists', lock, field) == 1 then
    return grant(lock, field, math.max(lease, value)) -- run once more: it finds its own work
  elseif redis.call('hexists', lock, 'mode') == 1 then
    return REFUSED, 'CONFLICT rw' -- Redisson's read-write lock is a hash too
  end
  local waits = (manner == 'wait' or manner == 'insist') and client ~= ''
  if waits and (code == HELD or code == RESERVED) then
    if not line_up(line) and code == HELD then code = UNHEARD end
  end
  return code, value
end

-- Whatever goes wrong with one lock is said of that one alone.
local function guarded(work, ...)
  local fine, code, value = pcall(work, ...)
  if fine then return code, value end
  return REFUSED, type(code) == 'table' and code.err or tostring(code)
end

