-- The holder of a plain lock: a hash with one owner field. The hold ends with the TTL of the key. The functions do what those
-- of zset.lua do for the other kinds.

local kind, capacity, is_set = 'lock', 1, false
local lock, line, notes, channel
local used
local lock_is_new -- the key did not exist when the script began

-- As in zset.lua, with one difference: a newcomer to a held lock may line up although the memory is full. Otherwise it
-- might never get the lock.
local function check_writable(is_newcomer)
  if is_newcomer and used == 0 then
    redis.call('zadd', line, 'XX', '0', 'parklock:nobody')
  else
    redis.call('hdel', lock, 'parklock:nobody')
  end
end

local function open_holders(noted)
  used = redis.call('hlen', lock) > 0 and 1 or 0
  lock_is_new = used == 0
  local known_kind, known_capacity = (noted or ''):match('^(%a+) (%d+)$')
  return known_kind, tonumber(known_capacity)
end

-- For how much longer this owner holds the lock, in ms. Nil if it does not hold it.
local function holds(field)
  return redis.call('hexists', lock, field) == 1 and redis.call('pttl', lock)
end

-- The owner fields of the holders; of none if the user may not read them, or if another program's hash is there.
local function first_holders()
  local fields = redis.pcall('hlen', lock) == 1 and redis.pcall('hkeys', lock) or {}
  return fields.err and {} or fields
end

-- The server itself deletes the key when the lease is over.
local function let_go() end

-- Lets these entries in: their grants have consecutive numbers from this one on. Here there is only one entry.
local function put_in(entries, number)
  local code, err = put(lock, entries[1].field, string.format('%.0f', entries[1].ms), number)
  if code ~= GRANTED then return nil, err end
  used = 1
  return number
end

-- Extends a hold to this long from now. The caller never passes less than the holder has left.
local function prolong(field, ms)
  redis.call('pexpire', lock, string.format('%.0f', ms))
end

local function end_hold(field)
  if redis.call('hdel', lock, field) == 0 then return false end
  used = redis.call('exists', lock)
  return true
end

local function end_all_holds()
  local gone = redis.call('del', lock)
  used = 0
  return gone, {}
end

local function shortest_lease()
  local ttl = redis.call('pttl', lock)
  return ttl ~= -2 and ttl
end

local function settle_holders() end

