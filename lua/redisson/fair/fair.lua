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
-- Ours refresh their deadlines with each sign of life. What is written for us outlives the next one by our
-- patience, by what clocks may differ, and by all that Redisson's clients before us may take off. Our own
-- scripts know that we are dead as soon as our patience is over: they tell us from Redisson's by the version
-- of the client's UUID, which there is always 4.
--
-- Nobody waits in Redisson's queue while we wait and hold: a deadline behind us would run out before its turn.
-- So our scripts keep to Redisson's rule for a newcomer: a deadline of Redisson's is counted from the deadline
-- of whoever stands before it, and the first one from the end of the holder's lease. Whenever one of ours
-- moves what others are counted from, by a sign of life, a grant, a renewal or a release, it moves them with
-- it, up to the next of ours. Each is waited for as long as it asked for, and the time that we hold is not
-- part of it.

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

-- Moves the deadlines of Redisson's clients from this place on, up to the next of ours, by so many ms. Moved
-- back, each is still waited for as long as one of ours that fell silent.
local function move(place, ms)
  local who = redis.call('lindex', queue, place)
  while who and not is_ours(who) do
    local deadline = tonumber(redis.call('zscore', deadlines, who) or now)
    local least = math.min(deadline, now + patience + SKEW)
    redis.call('zadd', deadlines, string.format('%.0f', math.max(least, deadline + ms)), who)
    place = place + 1
    who = redis.call('lindex', queue, place)
  end
end

-- What the deadline of whoever stands at this place is counted from.
local function base(place)
  local before = place > 0 and redis.call('lindex', queue, place - 1)
  local deadline = before and tonumber(redis.call('zscore', deadlines, before) or nil)
  return deadline or now + math.max(0, redis.call('pttl', lock))
end

-- One of ours leaves the queue, to hold the lock or for good. Whether it stood there.
local function leave(field)
  local place = redis.call('lpos', queue, field)
  local deadline = tonumber(redis.call('zscore', deadlines, field) or nil)
  local by = place and deadline and base(place) - deadline
  redis.call('zrem', deadlines, field)
  redis.call('lrem', queue, 1, field)
  if by then pcall(move, place, by) end
  return place or deadline
end

-- Throws out whoever stands at the head and is dead. Who stands there then, if anybody does.
local function head_of_queue()
  local head = redis.call('lindex', queue, 0)
  while head do
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline - (is_ours(head) and SKEW or 0) > now then return head end
    if is_ours(head) then
      leave(head)
    else
      redis.call('lpop', queue)
      redis.call('zrem', deadlines, head)
    end
    head = redis.call('lindex', queue, 0)
  end
end

local function tell(field)
  redis.pcall('publish', channel .. ':' .. field, message)
end

-- A day longer than anybody in it is waited for: Redisson's clients, which never ask for more time, may
-- be the only ones that come in the meantime. It is written again when half of that is over.
local function keep()
  local last = redis.call('zrange', deadlines, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  local ms = A_DAY + math.min(math.max(0, last - now), 1e12)
  for _, key in ipairs({ queue, deadlines }) do
    if redis.call('pttl', key) < ms - A_DAY / 2 then
      redis.call('pexpire', key, string.format('%.0f', ms))
    end
  end
end

