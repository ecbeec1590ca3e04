-- All requests that plain_take_uncontended.lua has not answered: several locks, one that is not free, or a lost counter.

local function grant(lock, field, lease)
  local number, err = draw(1)
  if not number then return REFUSED, err end
  return put(lock, field, lease, number)
end

-- Usually all of them are free. Then one command checks that, and one draws all numbers.
local locks = (#KEYS - 1) / 2
local first = redis.pcall('exists', unpack(KEYS, 2)) == 0 and draw(locks)

local function attempt(i, lock, line, field, lease)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if first then return put(lock, field, lease, first + i - 1) end
  if redis.call('exists', lock, line) == 0 then return grant(lock, field, lease) end
  redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
  -- The notes, which this script has not, may say that nobody listens to a client with a session (see sessions.lua). It asks again,
  -- with acquire.lua.
  if redis.call('hexists', lock, field) == 0 or field:find('+', 1, true) then return CONTENDED, 0 end
  return grant(lock, field, math.max(lease, redis.call('pttl', lock)))
end

-- An error of one lock is reported for that lock alone.
local reply = {}
for i = 1, locks do
  local fine, code, value = pcall(attempt, i, KEYS[2 * i], KEYS[2 * i + 1], ARGV[2 * i], ARGV[2 * i + 1])
  if not fine then code, value = REFUSED, type(code) == 'table' and code.err or tostring(code) end
  reply[2 * i - 1], reply[2 * i] = code, value
end
return reply
