-- The beginning of all scripts in this folder, after lua/lock/draw.lua: Redisson's RSemaphore ('semaphore') and
-- RPermitExpirableSemaphore ('expirable').
--
-- KEYS   the token counter, the permits that are free, the leases, the notes
-- ARGV   the floor of the counter, the kind, its capacity, channel, message (not used: the message is how many permits are free),
--        waiter_ttl in ms (not used), then what the script asks for
--
-- Free     Redisson's: how many permits are free. It may be negative. It has no TTL, since the semaphore would end with it.
-- Leases   member -> the end of its lease in ms.
--          'expirable': Redisson's. Each permit has a member. Ours are owner field, owner field:2, and so on. Java's are 16
--          bytes, and end by Java's clock.
--          'semaphore': ours alone, one owner field for all permits of a hold. Redis does not know what Java holds.
-- Notes    for 'semaphore' only: owner field -> how many permits it holds; 'total': the number that a client of ours has set,
--          and until when it applies
--
-- Our leases are measured by the server's clock. The next client of ours that asks returns the permits of a dead
-- holder. So our keys have to outlive their leases: by a year, chosen arbitrarily.

local DAY, YEAR = 86400000, 31536000000
local BOUND = 1000 -- how many expired leases reap() removes at most: more would stop the server for all others
local free, leases, notes = KEYS[2], KEYS[3], KEYS[4]
local expirable, capacity, channel = ARGV[2] == 'expirable', tonumber(ARGV[3]), ARGV[4]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Read before the first write: a key of another type is refused here.
local available = redis.call('get', free)
local are_leases, are_notes = redis.call('zcard', leases) > 0, redis.call('hlen', notes) > 0
-- Redis refuses to count with what only Lua takes for a number, such as 007.
if available and available ~= '0' and (#available > 16 or not available:match('^%-?[1-9]%d*$')) then
  return redis.error_reply('CONFLICT value that is no number')
end
available = tonumber(available)
local before = available

-- The member of the n-th permit of an owner. All of them expire at the same time, and the first sorts first: so Java
-- removes the first one first.
local function member(field, nth)
  return nth == 1 and field or field .. ':' .. nth
end

-- How many permits this owner has.
local function held_by(field)
  if not redis.call('zscore', leases, field) then return 0 end
  if not expirable then return tonumber(redis.call('hget', notes, field) or 1) end
  local permits = 1
  while redis.call('zscore', leases, member(field, permits + 1)) do
    permits = permits + 1
  end
  return permits
end

local function lease(field, permits, until_when)
  local score = string.format('%.0f', until_when)
  for nth = 1, expirable and permits or 1 do
    redis.call('zadd', leases, score, member(field, nth))
  end
  if expirable then
    -- Both keys expire together, as in Redisson.
    local ttl = redis.call('pttl', free)
    if ttl > 0 then redis.call('pexpire', leases, ttl) end
    return
  end
  redis.call('hset', notes, field, permits)
  for _, key in ipairs({ leases, notes }) do
    if redis.call('pttl', key) < until_when - now + YEAR then
      redis.call('pexpire', key, string.format('%.0f', until_when - now + YEAR))
    end
  end
end

-- Removes a lease. Returns how many permits it had. If the lease is missing, its note stays, so that
-- `orphans` can return its permits.
local function forget(field)
  local permits = held_by(field)
  if permits == 0 then return 0 end
  for nth = 1, expirable and permits or 1 do
    redis.call('zrem', leases, member(field, nth))
  end
  redis.call('hdel', notes, field)
  return permits
end

-- Returns permits to an existing semaphore. If it is missing, the next client that asks sets it to its whole number.
local function give_back(permits)
  if not available or permits == 0 then return end
  available = redis.call('incrby', free, string.format('%.0f', permits))
end

-- How many permits these members of the leases stand for.
local function permits_of(members)
  if expirable then return #members end
  local permits = 0
  for _, field in ipairs(members) do
    permits = permits + (redis.call('hget', notes, field) or 1)
  end
  return permits
end

-- How many permits are leased, as far as Redis knows. Those whose leases have expired count until reap() takes them.
local function leased()
  if expirable then return redis.call('zcard', leases) end
  return permits_of(redis.call('zrange', leases, 0, -1))
end

-- How many of these have expired.
local function expired()
  return permits_of(redis.call('zrange', leases, 0, now, 'BYSCORE'))
end

-- How many permits there are in total, as far as Redis knows.
local function total()
  if not available then return nil end
  if expirable then return available + leased() end
  local permits, until_when = (redis.call('hget', notes, 'total') or ''):match('^(%d+) (%d+)$')
  return tonumber(until_when or 0) > now and tonumber(permits) or nil
end

-- Records the number that a plain semaphore was set to. It applies for only a day: Java may also change the number,
-- without a note.
local function remember(permits)
  redis.call('hset', notes, 'total', string.format('%.0f %.0f', permits, now + DAY))
  if redis.call('pttl', notes) < DAY then redis.call('pexpire', notes, DAY) end
end

-- Removes the notes of all owners.
local function forget_owners()
  local resized = redis.call('hget', notes, 'total')
  redis.call('del', notes)
  if resized then
    redis.call('hset', notes, 'total', resized)
    redis.call('pexpire', notes, DAY)
  end
end

-- Removes the notes of leases that were deleted or evicted all at once. Returns how many permits they had.
local function orphans()
  if expirable or are_leases or not are_notes then return 0 end
  local permits, noted = 0, redis.call('hgetall', notes)
  for i = 1, #noted, 2 do
    if noted[i] ~= 'total' then permits = permits + noted[i + 1] end
  end
  if permits > 0 then forget_owners() end
  return permits
end

-- Takes the permits whose leases were deleted or have expired: of the latter, BOUND at most. The next calls take the rest.
local function reap()
  local over = redis.call('zrange', leases, 0, now, 'BYSCORE', 'LIMIT', 0, BOUND)
  local permits = orphans() + permits_of(over)
  if #over > 0 then
    redis.call('zrem', leases, unpack(over))
    if not expirable then redis.call('hdel', notes, unpack(over)) end
  end
  give_back(permits)
end

-- Sets a missing semaphore, as Redisson's trySetPermits does. Permits that are leased are not free.
local function establish(permits)
  redis.call('hdel', notes, 'total')
  available = permits - leased()
  redis.call('set', free, string.format('%.0f', available))
end

-- Notifies the waiters that permits have become free. Redisson's subscribers fail on a negative number.
local function tell()
  if available and available > 0 and available > (before or 0) then
    redis.pcall('publish', channel, string.format('%.0f', available))
  end
end

-- This changes nothing, needs no memory, and a replica refuses it. After it, Redis allows the writes that need memory.
local function touch()
  redis.call('zrem', leases, 'parklock:nobody')
end
