-- Take each of these plain locks if it is free and nobody waits for it. This puts nobody in line.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock: the grant, which is the new value of the counter
--        2, 0       another client holds it or waits for it: ask for it alone, with acquire.lua
--        -1, text   refused, nothing was changed
--
-- The locks are distinct. A script that runs again for the same owner field finds its own work, and answers "taken"
-- again.

-- Usually all of them are free. Then one command checks that, and one draws all numbers.
local locks = (#KEYS - 1) / 2
local first = redis.pcall('exists', unpack(KEYS, 2)) == 0 and draw(locks)

local function take(i, lock, line, field, lease)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if first then return put(lock, field, lease, first + i - 1) end
  if redis.call('exists', lock, line) ~= 0 then
    redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
    -- The notes, which this script has not, may say that nobody listens to a client with a session (see sessions.lua). It asks
    -- again, with acquire.lua.
    if redis.call('hexists', lock, field) == 0 or field:find('+', 1, true) then return CONTENDED, 0 end
    lease = math.max(lease, redis.call('pttl', lock))
  end
  local number, err = draw(1)
  if not number then return REFUSED, err end
  return put(lock, field, lease, number)
end

-- An error of one lock is reported for that lock alone.
local reply = {}
for i = 1, locks do
  local fine, code, value = pcall(take, i, KEYS[2 * i], KEYS[2 * i + 1], ARGV[2 * i], ARGV[2 * i + 1])
  if not fine then code, value = REFUSED, type(code) == 'table' and code.err or tostring(code) end
  reply[i] = code == GRANTED and value or { code, value }
end
return reply
