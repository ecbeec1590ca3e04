-- Take all of these plain locks if every one of them is free and no waiter may come for it. Otherwise take none, and
-- report which one is unavailable.
--
-- KEYS   the token counter, then for each lock: the lock, its line, its notes
-- ARGV   the floor of the counter, the client that publishes, its waiter_ttl (how long after a sign of life a client counts as
--        alive) in ms, then for each lock: owner field, lease in ms, channel
-- Reply  three items:
--          1, 0, grant      all are taken; the grant is that of the first lock, and grows by one from lock to lock
--          0, n, TTL in ms  the n-th is held by somebody else (-1: the key has no TTL)
--          3, n, TTL in ms  the same; the clients that keep this lock or later ones were told to give them back if they are idle
--          2, n, 0          the n-th is free, but a waiter stands in line for it
--         -1, n, text       refused because of the n-th (0: of none of them)
--        Unless all are taken, nothing has changed, except that a line may have moved on.
--
-- The locks are distinct. A script that runs again for the same owner fields finds its own work, and answers "taken"
-- again. It puts nobody in line: a caller waits for one of the locks with acquire.lua.

from, waiter_ttl = ARGV[2], tonumber(ARGV[3])
if out_of_range(waiter_ttl) then return redis.error_reply('ERR waiter_ttl out of range') end

local locks = (#KEYS - 1) / 3
local found = {} -- the TTLs of the locks that have our field already

local function asked(i)
  lock, line, notes, channel = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1], ARGV[3 * i + 3]
  return lock, ARGV[3 * i + 1], ARGV[3 * i + 2]
end

-- Why the i-th lock cannot be taken. Nil if it has our field, or if it is free and no waiter may come for it.
local function obstacle(i)
  local _, field, lease = asked(i)
  sessions.erase_note(notes, field)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  check_writable()
  if redis.call('exists', line) == 1 then
    local known, known_capacity = open()
    if known and known ~= kind then return REFUSED, string.format('CONFLICT %s %.0f', known, known_capacity) end
    move_on()
  end
  local ttl = redis.call('pttl', lock)
  if ttl == -2 then
    if redis.call('exists', line) == 1 and somebody_may_come(field) then return CONTENDED, 0 end
    return
  end
  if redis.call('hexists', lock, field) == 1 then
    found[i] = ttl
    return
  end
  if not tell_keeper(lock, channel, from, TRIES) then return HELD, ttl end
  -- Otherwise a caller would need a call for each lock that is kept.
  for later = i + 1, locks do
    asked(later)
    tell_keeper(lock, channel, from, TRIES)
  end
  return KEPT, ttl
end
