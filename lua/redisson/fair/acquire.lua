-- Take it, or wait for it: also the sign of life of somebody who waits.
--
-- KEYS   see fair.lua
-- ARGV   ..., owner field, 1, lease in ms, manner ('wait': queue if it is not ours now, otherwise now or
--        never), '', the mark of its last answer or 0, and one that is nothing to this lock: its messages grant
--        nothing
-- Reply  1, grant        taken; the grant is the new value of the counter
--        0, TTL in ms    held by somebody else, or somebody else's turn (-1: the key has no TTL)
--        0, TTL in ms, mark  so it is, and it waits in the queue now; the mark is the script's own affair
--        an error of CONFLICT: the name is a read-write lock's
--
-- Run again for the same owner field, it finds its own work: it keeps its place, and what it holds.

local field, lease, manner, told = ARGV[7], tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[12])

local FRONT = 64 -- so many places from the head, all that stand before a waiter are looked at when they move
local PLACES, TIMES = 2 ^ 20, 2 ^ 32 -- of which a mark has one each; the times are ms, and begin again after 49 days

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if redis.call('hexists', lock, 'mode') == 1 then return redis.error_reply('CONFLICT rw') end

-- So long it has been granted it before.
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

-- What Redisson's clients before us may take off our deadline before it is our turn: their wait for each,
-- and more if they have longer ones, as the deadline of the last of them shows.
local function taken_off(place, ttl)
  local theirs, last = 0, nil
  for _, who in ipairs(place > 0 and redis.call('lrange', queue, 0, place - 1) or {}) do
    if not is_ours(who) then theirs, last = theirs + 1, who end
  end
  local off = theirs * THEIR_WAIT
  local deadline = last and ttl > 0 and redis.call('zscore', deadlines, last)
  return deadline and math.max(off, deadline - now - ttl) or off
end

-- A mark says where a waiter stood when it was answered, and when that was. The waiter says it back with its next
-- sign of life. As long as the queue stands still, this is then all that has to be known of it.
local function mark(place)
  return now % TIMES * PLACES + math.min(place, PLACES - 1)
end

-- The place that the mark says, and the ms that have passed since then.
local function marked()
  local passed = (now - math.floor(told / PLACES)) % TIMES
  -- The clock of another primary may be behind.
  return told % PLACES, passed < TIMES / 2 and passed or 0
end

-- Where it stands, and until when it is waited for from now on; at the end, if it has just come.
local function stand(before, ttl)
  local was, passed = marked()
  if before and redis.call('lindex', queue, was) == field then return was, before + passed end
  local place = redis.call('lpos', queue, field)
  -- Far from the head, it keeps what its deadline had beyond its patience: who left before it, and how, is
  -- looked at when it comes near.
  if before and place and place >= FRONT then return place, before + passed end
  return place, now + patience + SKEW + taken_off(place or redis.call('llen', queue), ttl)
end

-- The place at which it stands now.
local function queue_up(ttl)
  local before = tonumber(redis.call('zscore', deadlines, field) or nil)
  local place, deadline = stand(before, ttl)
  redis.call('zadd', deadlines, string.format('%.0f', deadline), field)
  if place and before then pcall(move, place + 1, deadline - before) end
  place = place or redis.call('rpush', queue, field) - 1
  local kept = redis.pcall('pttl', queue)
  local fine, err = pcall(keep)
  if not fine and kept == -1 then
    -- No key of ours is ever left without a TTL.
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
  local place = queue_up(ttl)
  -- It may have missed its message: Redisson's clients look only when they believe the lease to be over.
  if ttl == -2 then tell(head) end
  return { HELD, ttl == -2 and patience or ttl, mark(place) }
end

return attempt()
