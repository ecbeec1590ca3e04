-- The beginning of all scripts in this folder, after lua/lock/draw.lua: a read-write lock that clients of Redisson and
-- ours share.
--
-- KEYS   the token counter, the lock, a key that is not used here, the prefix of the readers' keys
-- ARGV   the floor of the counter, the kind, its capacity, channel, the client that publishes, waiter_ttl in ms, then what the
--        script asks for, as in lua/line/
--
-- Lock           'mode' -> 'read' or 'write'; the owner field of a reader -> its hold count; the owner field of a writer and
--                ':write' -> its hold count; the key lives as long as the longest of them
-- Readers' keys  one for each hold, with the TTL of that hold; a reader without any is dead
--
-- The hold count of our owners is always one here: our client counts in its own memory. We read the fields of Java's
-- owners and never change them; they disappear with the lock when nobody in it is alive. The messages are Redisson's:
-- '0' wakes one waiter of each of its clients, '1' wakes all.

local lock, prefix, capacity, channel = KEYS[2], KEYS[4], tonumber(ARGV[3]), ARGV[4]
local ONE, ALL = '0', '1'
local MOST_HOLDS = 65535 -- no reader has more; a field that says so is no hold count

local mode = redis.call('hget', lock, 'mode') -- before the first write: a key of another type is refused here

-- Whether this is a hash without a mode: a plain lock, or no lock at all. Redisson would grant such a lock.
local function is_strange()
  return mode ~= 'read' and mode ~= 'write' and redis.call('exists', lock) == 1
end

-- This changes nothing, and a replica refuses it: so the reply always comes from a primary.
local function confirm()
  redis.call('hdel', lock, 'parklock:nobody')
end

local function conflict()
  confirm()
  return redis.error_reply('CONFLICT lock')
end

local function key_of(reader, hold)
  return prefix .. ':' .. reader .. ':rwlock_timeout:' .. hold
end

-- How long the last reader is alive, in ms. It stops as soon as it finds a reader that is alive for `enough` or longer.
local function longest_life(enough)
  local longest, fields = 0, redis.call('hgetall', lock)
  for i = 1, #fields, 2 do
    for hold = 1, math.min(tonumber(fields[i + 1]) or 0, MOST_HOLDS) do
      longest = math.max(longest, redis.call('pttl', key_of(fields[i], hold)))
      if longest >= enough then return longest end
    end
  end
  return longest
end

-- Extends the life of the lock to at least this long. Returns whether that succeeded. A TTL that is long enough is written, too: on a
-- new connection, WAIT counts the replicas that have what this connection has written.
local function keep(ms)
  local kept = redis.pcall('pexpire', lock, math.max(ms, redis.call('pttl', lock)))
  if kept == 1 then return true end
  return false, type(kept) == 'table' and kept.err or 'ERR the expiry was not set'
end

local function tell(message)
  redis.pcall('publish', channel, message)
end

-- The caller does not hold the lock. If nobody does, the lock may have gone without a release: somebody deleted it, or a
-- replica without it was promoted. In that case nobody has notified the waiters, and they would sleep until the old TTL is
-- over.
local function tell_if_gone()
  if redis.call('exists', lock) == 0 then tell(ALL) end
end

local function free(message)
  redis.pcall('del', lock)
  tell(message)
end

-- A holder has left, and nobody writes: the lock now lives as long as its last reader. Without a reader it is free.
-- Returns how long it lives now, and how long it lived before.
local function settle(message)
  local before = redis.call('pttl', lock)
  local enough = before < 0 and math.huge or before
  local life = redis.call('hlen', lock) > 1 and longest_life(enough) or 0
  if life <= 0 then
    free(message)
  elseif life < enough then
    redis.pcall('pexpire', lock, life)
  end
  return life, before
end

-- A reader of ours leaves. Returns 1 if it was there.
local function stop_reading(reader)
  local left = redis.call('hdel', lock, reader)
  redis.pcall('del', key_of(reader, 1))
  if left == 0 then
    tell_if_gone()
    return 0
  end
  if mode == 'write' and redis.call('hlen', lock) > 1 then return 1 end -- its owner still writes
  local life, before = settle(ONE)
  -- A waiter believes the TTL that was reported to it, and may be waiting for dead readers.
  if life > 0 and life < before / 2 then tell(ONE) end
  return 1
end

