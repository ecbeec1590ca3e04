-- Take each lock that is free. Report for each other lock how long it is still held.
--
-- KEYS   the token counter, the locks
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock two items:
--          1, grant        taken; the grant is the new value of the counter
--          0, TTL in ms    held by somebody else (-1: the key has no TTL)
--         -1, text         refused, nothing was changed
--
-- The locks are distinct: a free lock that is named twice would be granted twice. A script that runs again for the same
-- owner field finds its own work, and answers "taken" again.

local function grant(lock, field, lease)
  local number, err = draw(1)
  if not number then return REFUSED, err end
  return put(lock, field, lease, number)
end

local function attempt(lock, field, lease)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if redis.call('exists', lock) == 0 then return grant(lock, field, lease) end
  redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
  local ttl = redis.call('pttl', lock)
  if redis.call('hexists', lock, field) == 1 then return grant(lock, field, math.max(lease, ttl)) end
  if redis.call('hexists', lock, 'mode') == 1 then
    return REFUSED, 'CONFLICT rw' -- Redisson's read-write lock is a hash too
  end
  return HELD, ttl
end

-- An error of one lock is reported for that lock alone.
local reply = {}
for i = 1, #KEYS - 1 do
  local fine, code, value = pcall(attempt, KEYS[i + 1], ARGV[2 * i], ARGV[2 * i + 1])
  if not fine then code, value = REFUSED, type(code) == 'table' and code.err or tostring(code) end
  reply[2 * i - 1], reply[2 * i] = code, value
end
return reply
