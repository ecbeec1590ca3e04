-- Take the lock, or wait for it. For a waiter, the call is also a sign of life.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field, 1, lease in ms, manner ('wait': queue if it is not granted now; otherwise do not wait), '', the mark
--        from the last reply or 0, and a secret that this lock does not use: its messages grant nothing
-- Reply  1, grant        taken; the grant is the new value of the counter
--        0, TTL in ms    another client holds the lock or goes first (-1: the key has no TTL)
--        0, TTL in ms, mark  the same, and the caller now waits in the queue; only this script interprets the mark
--        an error of CONFLICT: the name is that of a read-write lock
--
-- A script that runs again for the same owner field finds its own work: the caller keeps its place, and what it holds.

local field, lease, manner, told = ARGV[7], tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[12])

local FRONT = 64 -- at places below this one, a waiter checks all waiters ahead when they move
local PLACES, TIMES = 2 ^ 20, 2 ^ 32 -- a mark has one of each; the times are ms, and wrap around after 49 days

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if redis.call('hexists', lock, 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
redis.call('llen', queue) -- keys of another type are refused here, before the first write
redis.call('zcard', deadlines)

-- `before`: for how long the caller already holds the lock, in ms.
local function take(before)
  local number, err = draw(1)
  if not number then return redis.error_reply(err) end
  local code, value = put(lock, field, math.max(lease, before), number)
  if code == REFUSED then return redis.error_reply(value) end
  if before > 0 then pcall(move, 0, math.max(lease, before) - before) end
  leave(field)
  pcall(keep)
  return { GRANTED, number }
end

-- How much Redisson's clients ahead of us may subtract from our deadline before it is our turn: the default wait of
-- each, or more if they wait longer. For how long those that stand together wait, the deadline of their last one shows.
local function taken_off(place)
  local ahead, off, first = place > 0 and redis.call('lrange', queue, 0, place - 1) or {}, 0, nil
  for i, who in ipairs(ahead) do
    if not is_ours(who) then
      first = first or i
      if not ahead[i + 1] or is_ours(ahead[i + 1]) then
        local deadline, usual = redis.call('zscore', deadlines, who) or 0, (i - first + 1) * THEIR_WAIT
        local wait = deadline - base(first - 1)
        -- If the head came before the holder, its deadline does not count from the end of the lease.
        if first == 1 and wait > usual + SKEW then wait = deadline - now end
        off, first = off + math.max(usual, wait), nil
      end
    end
  end
  return off
end

-- A mark contains the place of a waiter at the last reply, and the time of that reply. The waiter sends it back with
-- its next sign of life. As long as the queue does not move, the script needs nothing else about the waiter.
local function mark(place)
  return now % TIMES * PLACES + math.min(place, PLACES - 1)
end

-- The place in the mark, and the ms that have passed since then.
local function marked()
  local passed = (now - math.floor(told / PLACES)) % TIMES
  -- The clock of another primary may be behind.
  return told % PLACES, passed < TIMES / 2 and passed or 0
end

-- The caller's place and its new deadline. For a newcomer the place is nil: it goes to the end.
local function stand(before)
  local was, passed = marked()
  if before and redis.call('lindex', queue, was) == field then return was, before + passed end
  local place = redis.call('lpos', queue, field)
  -- Far from the head, a waiter keeps what its deadline had beyond its patience. When it comes near, the script checks
  -- which waiters ahead of it have left, and how.
  if before and place and place >= FRONT then return place, before + passed end
  return place, now + patience + SKEW + taken_off(place or redis.call('llen', queue))
end

-- The caller's place now.
local function queue_up()
  local before = tonumber(redis.call('zscore', deadlines, field) or nil)
  local place, deadline = stand(before)
  redis.call('zadd', deadlines, string.format('%.0f', deadline), field)
  if place and before then pcall(move, place + 1, deadline - before) end
  place = place or redis.call('rpush', queue, field) - 1
  local kept = redis.pcall('pttl', queue)
  local fine, err = pcall(keep)
  if not fine and kept == -1 then
    -- No key of ours may ever remain without a TTL.
    leave(field)
    error(err)
  end
  return place
end

local function attempt()
  local ttl = redis.call('pttl', lock)
  if redis.call('hexists', lock, field) == 1 then return take(math.max(0, ttl)) end
  local head = head_of_queue()
  if ttl == -2 and (not head or head == field) then return take(0) end
  if manner ~= 'wait' then
    redis.call('hdel', lock, 'parklock:nobody') -- changes nothing; a replica refuses it
    return { HELD, ttl == -2 and patience or ttl }
  end
  local place = queue_up()
  -- The head may have missed its message: Redisson's clients check only when they believe that the lease is over.
  if ttl == -2 then tell(head) end
  return { HELD, ttl == -2 and patience or ttl, mark(place) }
end

return attempt()
