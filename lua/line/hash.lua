-- Who holds a plain lock: a hash with one owner field, which ends with the TTL of the key. As lua/line/zset.lua for the
-- other kinds.

local kind, capacity, is_set = 'lock', 1, false
local lock, line, notes, channel
local used

-- As in zset.lua, but for one thing: who comes to a lock that is held may stand in line though the memory is full. The
-- alternative is that it never gets it.
local function check_writable(is_newcomer)
  if is_newcomer and used == 0 then
    redis.call('zadd', line, 'XX', 0, 'parklock:nobody')
  else
    redis.call('hdel', lock, 'parklock:nobody')
  end
end

local function open_holders(noted)
  used = redis.call('hlen', lock) > 0 and 1 or 0
  local known_kind, known_capacity = (noted or ''):match('^(%a+) (%d+)$')
  return known_kind, tonumber(known_capacity)
end

-- For how much longer it holds it, in ms; nothing if it does not.
local function holds(field)
  return redis.call('hexists', lock, field) == 1 and redis.call('pttl', lock)
end

-- Nobody's lease is over here that the server has not let go itself.
local function let_go() end

-- Those who are let in have the numbers from this one on. Here there is one of them.
local function put_in(entries, number)
  local code, err = put(lock, entries[1].field, string.format('%.0f', entries[1].ms), number)
  if code ~= GRANTED then return nil, err end
  used = 1
  return number
end

-- Lets one that holds it hold it for so much longer from now. It is no less than what it had.
local function prolong(field, ms)
  redis.call('pexpire', lock, string.format('%.0f', ms))
end

local function put_out(field)
  if redis.call('hdel', lock, field) == 0 then return false end
  used = redis.call('exists', lock)
  return true
end

local function put_all_out()
  local gone = redis.call('del', lock)
  used = 0
  return gone, {}
end

local function shortest_lease()
  local ttl = redis.call('pttl', lock)
  return ttl ~= -2 and ttl
end

local function settle_holders() end

