-- What the scripts of this folder begin with, after lua/lock/grant.lua: a read-write lock as it lies in
-- Redis for the clients of Redisson, and for ours beside them.
--
-- KEYS   the token counter, the lock, a key that is not used here, the beginning of the readers' keys
-- ARGV   the floor of the counter, the kind, its capacity, channel, who publishes, how long a place
--        outlives its last sign of life in ms, then what the script asks for: see lua/queue/*.lua
--
-- Lock           'mode' -> 'read' or 'write'; who reads -> its holds; who writes and ':write' -> its
--                holds; lives as long as the last of them
-- Readers' keys  one for each hold, with the TTL of that hold: a reader without any is dead
--
-- A hold of ours is one whatever it counts in our memory. What stands here of others is theirs: it is
-- read, and goes with the lock when nobody in it lives. The messages are Redisson's: '0' wakes one
-- waiter of each of its clients, '1' all.

local lock, prefix, capacity, channel = KEYS[2], KEYS[4], tonumber(ARGV[3]), ARGV[4]
local ONE, ALL = '0', '1'
local MOST_HOLDS = 65535 -- no reader of ours has more; what says so is no count

local mode = redis.call('hget', lock, 'mode') -- before anything is written: another type is refused here

-- A hash without a mode is a plain lock, or none at all. Redisson would enter it.
local function is_strange()
  return mode ~= 'read' and mode ~= 'write' and redis.call('exists', lock) == 1
end

-- Changes nothing; a replica refuses it, so that what follows is always a primary's word.
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

-- How long the last of the readers lives, in ms; once it is enough, the others are not asked.
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

-- Lets the lock live at least so long; whether it does. A TTL that is long enough is left alone, since
-- each time that it is read and written it loses a part of a millisecond.
local function keep(ms)
  if redis.call('pttl', lock) >= ms then return true end
  local kept = redis.pcall('pexpire', lock, ms)
  if kept == 1 then return true end
  return false, type(kept) == 'table' and kept.err or 'ERR the expiry was not set'
end

local function tell(message)
  redis.pcall('publish', channel, message)
end

local function free(message)
  redis.pcall('del', lock)
  tell(message)
end

-- Somebody has left, and nobody writes: the lock lives as long as the last reader. Without one it is
-- free. How long it lives now, and how long it lived before.
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

-- A reader of ours leaves. Whether it was there.
local function stop_reading(reader)
  local left = redis.call('hdel', lock, reader)
  redis.pcall('del', key_of(reader, 1))
  if left == 0 then return 0 end
  if mode == 'write' and redis.call('hlen', lock) > 1 then return 1 end -- its owner writes on
  local life, before = settle(ONE)
  -- Whoever waits believes the TTL that it was told, and may be waiting for the dead.
  if life > 0 and life < before / 2 then tell(ONE) end
  return 1
end

