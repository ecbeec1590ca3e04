-- Take all of the locks if every one of them is free. Otherwise take none, and report which one is unavailable.
--
-- KEYS   the token counter, the locks
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  three items:
--          1, 0, grant      all are taken; the grant is that of the first lock, and grows by one from lock to lock
--          0, n, TTL in ms  the n-th is held by somebody else (-1: the key has no TTL)
--         -1, n, text       refused because of the n-th (0: of none of them)
--        Unless all are taken, nothing has changed.
--
-- The locks are distinct. A script that runs again for the same owner fields finds its own work, and answers "taken"
-- again.

local locks = #KEYS - 1
local found = {} -- the TTLs of the locks that have our field already

local function asked(i)
  return KEYS[i + 1], ARGV[2 * i], ARGV[2 * i + 1]
end

-- Why the i-th lock cannot be taken. Nil if it is free or has our field.
local function obstacle(i)
  local lock, field, lease = asked(i)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
  local ttl = redis.call('pttl', lock)
  if ttl == -2 then return end
  if redis.call('hexists', lock, field) == 0 then
    if redis.call('hexists', lock, 'mode') == 1 then return REFUSED, 'CONFLICT rw' end
    return HELD, ttl
  end
  found[i] = ttl
end
