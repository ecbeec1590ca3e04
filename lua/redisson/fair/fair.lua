-- The beginning of all scripts in this folder, after lua/lock/draw.lua: Redisson's fair lock, with its own queue,
-- shared with its own clients.
--
-- KEYS   the token counter, the lock, the queue, the deadlines
-- ARGV   the floor of the counter, the kind, its capacity, channel, message, how long a place outlives its last sign of life in
--        ms (our patience), then what the script asks for: see lua/line/*.lua
--
-- Lock       HASH owner field -> hold count
-- Queue      LIST of owner fields, in order
-- Deadlines  ZSET owner field -> the deadline until which its turn is kept, in ms
--
-- A client of Redisson never refreshes its deadline. It writes the deadline when it begins to wait: that of the last
-- waiter plus its own wait (300 s, or the limit of its tryLock), as if every waiter ahead used up its own wait. When it
-- is granted the lock, or gives up, it subtracts its wait from the deadlines behind it. Any of Redisson's clients
-- removes a head whose deadline is over by that client's own clock.
--
-- Our clients refresh their deadlines with each sign of life. A deadline of ours allows for our patience, for the
-- difference of clocks, and for everything that Redisson's clients ahead of us may subtract. Our own scripts treat our
-- waiter as dead as soon as its patience is over. They distinguish our waiters from Redisson's by the version of the
-- client's UUID, which is always 4 in Redisson.
--
-- Redisson's rules leave out the time that our clients wait and hold. So the deadline of a Redisson client behind ours
-- would pass before its turn. To prevent that, our scripts follow Redisson's rule for a newcomer: a deadline of
-- Redisson's counts from the deadline of the waiter ahead, and the first one counts from the end of the holder's lease.
-- When one of our clients moves such a starting point, by a sign of life, a grant, a renewal or a release, the script
-- moves the deadlines that count from it too, up to our next waiter. So each waiter is kept for as long as it asked
-- for, not counting the time that we hold the lock.

local lock, queue, deadlines = KEYS[2], KEYS[3], KEYS[4]
local channel, message, patience = ARGV[4], ARGV[5], tonumber(ARGV[6])

local THEIR_WAIT = 300000
local SKEW = 5000 -- how far the clock of a Redisson client may be ahead of the server's
local LONGEST_PATIENCE = 60000 -- a client with a longer one is told to show a sign of life more often
local A_DAY = 86400000

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_ours(field)
  return field:sub(15, 15) == '8'
end

-- Moves the deadlines of Redisson's clients by this many ms, from this place up to our next waiter. A move
-- backwards leaves each deadline at least `patience` and `SKEW` from now, if it had that much before.
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

-- What the deadline of the waiter at this place counts from.
local function base(place)
  local before = place > 0 and redis.call('lindex', queue, place - 1)
  local deadline = before and tonumber(redis.call('zscore', deadlines, before) or nil)
  return deadline or now + math.max(0, redis.call('pttl', lock))
end

-- A waiter of ours leaves the queue, because it holds the lock or for good. Returns whether it was in the queue.
local function leave(field)
  local place = redis.call('lpos', queue, field)
  local deadline = tonumber(redis.call('zscore', deadlines, field) or nil)
  local by = place and deadline and base(place) - deadline
  redis.call('zrem', deadlines, field)
  redis.call('lrem', queue, 1, field)
  if by then pcall(move, place, by) end
  return place or deadline
end

local function tell(field)
  redis.pcall('publish', channel .. ':' .. field, message)
end

-- Nobody stands ahead of our head who could still subtract from its deadline. A live head corrects its deadline with its next
-- sign of life. If the head is dead, the others would also wait for the time that a dead client of Redisson never subtracted.
local function cap(head, deadline)
  local most = now + math.max(patience, LONGEST_PATIENCE) + SKEW
  if deadline <= most then return end
  redis.pcall('zadd', deadlines, string.format('%.0f', most), head)
  pcall(move, 1, most - deadline)
  tell(head)
end

-- Removes dead waiters from the head. Returns the waiter at the head then, if there is one.
local function head_of_queue()
  local head = redis.call('lindex', queue, 0)
  while head do
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline - (is_ours(head) and SKEW or 0) > now then
      if is_ours(head) then cap(head, deadline) end
      return head
    end
    if is_ours(head) then
      leave(head)
    else
      redis.call('lpop', queue)
      redis.call('zrem', deadlines, head)
    end
    head = redis.call('lindex', queue, 0)
  end
end

-- Sets the TTL of the queue: a day longer than the latest deadline, since Redisson's clients, which never refresh
-- anything, may be the only ones that come meanwhile. It is written again when half of that day is over.
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

