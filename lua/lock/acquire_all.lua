-- Take all of the locks if every one of them is free; otherwise take none, and say which is in the way.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, the TTL of a line in ms, our client, manner ('look' | 'once', see
--        take.lua), then for each lock: owner field, lease in ms
-- Reply  three items:
--          1, 0, grant      all are taken; the grant is that of the first, each further one has one more
--          0, n, TTL in ms  the n-th is held by somebody else (-1: the key has no TTL)
--          2, n, 0          the n-th is free, but the head of its line goes first
--         -1, n, text       refused because of the n-th (0: of none of them)
--        Whatever is not "taken" has changed nothing.
--
-- The locks are distinct. Run again for the same owner fields, it finds its own work and says "taken" once
-- more. Nobody is lined up: who waits for one of them does so as for a lock alone.

local locks, manner = (#KEYS - 1) / 2, ARGV[4]
local found = {} -- what was there of ours: its TTL

local function asked(i)
  return KEYS[2 * i], KEYS[2 * i + 1], ARGV[2 * i + 3], ARGV[2 * i + 4]
end

-- Nothing, if the lock is free or has our field.
local function obstacle(i)
  local lock, line, field, lease = asked(i)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  local err = refusal(lock)
  if err then return REFUSED, err end
  local ttl = redis.call('pttl', lock)
  if ttl ~= -2 then
    if redis.call('hexists', lock, field) == 0 then
      if redis.call('hexists', lock, 'mode') == 1 then return REFUSED, 'CONFLICT rw' end
      return HELD, ttl
    end
    found[i] = ttl
    return
  end
  if client == '' then return end
  local head = redis.call('zrange', line, 0, 0)[1]
  if head and head ~= client and manner ~= 'once' then return RESERVED, 0 end
end

local function undo(last)
  for i = 1, last do
    local lock, _, field = asked(i)
    if not found[i] then redis.pcall('hdel', lock, field) end
  end
end

local function take_all()
  local first, err = draw(locks)
  if not first then return REFUSED, 0, err end
  for i = 1, locks do
    local lock, _, field, lease = asked(i)
    local code, value = put(lock, field, math.max(lease, found[i] or 0), first + i - 1)
    if code ~= GRANTED then
      undo(i - 1)
      return code, i, value
    end
  end
  return GRANTED, 0, first
end

for i = 1, locks do
  local code, value = guarded(obstacle, i)
  if code then return { code, i, value } end
end
local code, which, value = take_all()
if code == GRANTED and client ~= '' then
  for i = 1, locks do
    redis.pcall('zrem', KEYS[2 * i + 1], client)
  end
end
return { code, which, value }
