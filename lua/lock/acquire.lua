-- Take each lock that is free; say of the others how long they are still held.
--
-- KEYS   the token counter, then the locks
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock two items:
--          1, grant        taken; the grant is the new value of the counter
--          0, TTL in ms    held by somebody else (-1: the key has no TTL)
--         -1, text         refused, nothing was changed
--
-- Run again for the same owner field, it finds its own work and says "taken" once more.

local LONGEST_LEASE = 86400000 -- 24 h
local LAST_EXACT = 9007199254740991 -- 2^53 - 1: beyond it, Lua's numbers skip some integers
local floor = tonumber(ARGV[1])

local function foreign(err)
  return string.find(err, 'not an integer', 1, true) or string.find(err, 'overflow', 1, true)
end

-- A counter that is lost, rolled back or overwritten by a stranger is lifted to the floor: the server's
-- own clock in microseconds, which passes faster than grants are made.
local function draw()
  local grant = redis.pcall('incr', KEYS[1])
  if type(grant) == 'table' then
    if not foreign(grant.err) then return nil, grant.err end
    grant = 0
  end
  if grant < floor or grant > LAST_EXACT then
    local set = redis.pcall('set', KEYS[1], ARGV[1])
    if set.err then return nil, set.err end
    grant = floor
  end
  return grant
end

-- The expiry comes last and is undone with the field: no key is ever left without a TTL.
local function put(lock, field, lease)
  local grant, err = draw()
  if not grant then return -1, err end
  local set = redis.pcall('hset', lock, field, 1)
  if type(set) == 'table' then return -1, set.err end
  local expiry = redis.pcall('pexpire', lock, lease)
  if expiry ~= 1 then
    redis.call('hdel', lock, field)
    return -1, type(expiry) == 'table' and expiry.err or 'ERR the expiry was not set'
  end
  return 1, grant
end

local function take(lock, field, lease)
  local ms = tonumber(lease)
  if not ms or ms < 1 or ms > LONGEST_LEASE then return -1, 'ERR lease out of range' end
  if redis.call('exists', lock) == 0 then return put(lock, field, lease) end
  -- A write that changes nothing: a replica refuses it, so "held" is always a primary's word.
  local write = redis.pcall('hdel', lock, 'parklock:nobody')
  if type(write) == 'table' then return -1, write.err end
  if redis.call('hexists', lock, field) == 1 then return put(lock, field, lease) end
  return 0, redis.call('pttl', lock)
end

if not floor or floor < 0 or floor > LAST_EXACT then
  return redis.error_reply('ERR floor out of range')
end
local reply = {}
for i = 2, #KEYS do
  local code, value = take(KEYS[i], ARGV[2 * i - 2], ARGV[2 * i - 1])
  reply[#reply + 1] = code
  reply[#reply + 1] = value
end
return reply
