-- What the scripts of this folder begin with, after lua/lock/grant.lua: Redisson's fair lock, with its own
-- queue, shared with its own clients.
--
-- KEYS   the token counter, the lock, the queue, the deadlines
-- ARGV   the floor of the counter, the kind, its capacity, channel, message, how long a place outlives
--        its last sign of life in ms, then what the script asks for: see lua/queue/*.lua
--
-- Lock       HASH owner field -> hold count
-- Queue      LIST of owner fields, in their order
-- Deadlines  ZSET owner field -> until when it is waited for, in ms
--
-- Redisson never refreshes a deadline. It writes one when it begins to wait: that of whoever is last plus
-- its own wait (300 s, or the limit of its tryLock), which is as if all before it used up theirs. When it
-- is granted the lock, or gives up, it takes its wait off the deadlines behind it. Any client of it, by its
-- own clock, throws out a head whose deadline is over.
--
-- Ours refresh their deadlines with each sign of life, and take nothing off those of others: what stands
-- behind us was put only our patience further back. What is written for us outlives the next sign of life
-- by our patience, by what clocks may differ, and by all that Redisson's clients before us may take off.
-- Our own scripts know that we are dead as soon as our patience is over: they tell us from Redisson's by the
-- version of the client's UUID, which there is always 4.

local lock, queue, deadlines = KEYS[2], KEYS[3], KEYS[4]
local channel, message, patience = ARGV[4], ARGV[5], tonumber(ARGV[6])

local THEIR_WAIT = 300000
local SKEW = 5000 -- how far the clock of a Redisson client may be ahead of the server's
local A_DAY = 86400000

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_ours(field)
  return field:sub(15, 15) == '8'
end

-- Throws out whoever stands at the head and is dead. Who stands there then, if anybody does.
local function head_of_queue()
  local head = redis.call('lindex', queue, 0)
  while head do
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline - (is_ours(head) and SKEW or 0) > now then return head end
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    head = redis.call('lindex', queue, 0)
  end
end

local function tell(field)
  redis.pcall('publish', channel .. ':' .. field, message)
end

-- A day longer than anybody in it is waited for: Redisson's clients, which never ask for more time, may
-- be the only ones that come in the meantime.
local function keep()
  local last = redis.call('zrange', deadlines, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  local ms = A_DAY + math.min(math.max(0, last - now), 1e12)
  for _, key in ipairs({ queue, deadlines }) do
    if redis.call('pttl', key) < ms then redis.call('pexpire', key, string.format('%.0f', ms)) end
  end
end

