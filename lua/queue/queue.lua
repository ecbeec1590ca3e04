-- What the scripts of this folder begin with, after lua/lock/grant.lua: holders who share a capacity,
-- and a queue of those who wait for a part of it. A fair lock is a capacity of one; who writes takes
-- the whole of it, who reads takes one; a permit is a part of a semaphore's.
--
-- KEYS   the token counter, the holders, the queue, the notes
-- ARGV   the floor of the counter, the kind, its capacity, channel, who publishes, how long a place
--        outlives its last sign of life in ms, then what the script asks for
--
-- Holders  owner field -> the end of its lease, in ms of the server's clock
-- Queue    owner field -> its place
-- Notes    owner field -> the part it holds or waits for, "place:" and owner field -> the end of its
--          place, the secret of its last sign of life, and the lease it wants (also of a holder that was told of its
--          grant and has not confirmed it); 'kind', 'capacity', 'used';
--          'set': somebody has set the capacity; 'written': the last holder wrote; 'clock': that of the places
--
-- The server's clock alone decides what is over.

-- How long a capacity that was set is remembered since it was last used, in ms: thirty days, so that what
-- runs once a month still finds it.
local REMEMBERED = 2592000000

local holders, queue, notes = KEYS[2], KEYS[3], KEYS[4]
local kind, channel, from, patience = ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])

local time = redis.call('time')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local held = redis.call('zcard', holders) -- before anything is written: another type is refused here
local known = redis.call('hget', notes, 'kind')
local capacity = tonumber(redis.call('hget', notes, 'capacity') or ARGV[3])
local is_set = known == kind and redis.call('hexists', notes, 'set') == 1

-- Places end by a clock that stands still with the server. In a stall no waiter can give a sign of life, and
-- the first script after it may run before those that wait in the sockets: it must throw out nobody.
-- Waiters come three times while a place lasts, so that a gap of more than half of that between two scripts
-- is a stall, and the clock leaves it out. After a second gap in a row it is not: nobody comes, or one who is
-- far away, and the dead must not live on between the scripts. It also leaves out a step back of the
-- server's clock. 'clock' is when the last script ran, how far the clock of the places was behind then,
-- whether that script came after a gap, and how long the place lasts that was renewed last: clients may
-- differ in that, and whoever runs this need not wait at all.
local behind, after_gap, rhythm, stood_still = 0, 0, patience, 0
local ran, was_behind, was_after_gap, was_rhythm =
  (redis.call('hget', notes, 'clock') or ''):match('^(%d+) (-?%d+) ([01]) (%d+)$')
if ran then
  local gap = now - ran
  behind, rhythm = tonumber(was_behind), tonumber(was_rhythm)
  if gap > rhythm / 2 then after_gap = 1 end
  if gap < 0 or after_gap == 1 and was_after_gap == '0' then behind, stood_still = behind + gap, gap end
end

local function tick()
  redis.call('hset', notes, 'clock', string.format('%.0f %.0f %d %.0f', now, behind, after_gap, rhythm))
end

-- A grant that is told lasts as long as the place that it was made of. While the server stands still nobody can hear of
-- it or confirm it, so that it stands still too: otherwise its waiter would lose its turn. The clock is written first,
-- or the next script would find the same gap once more; if memory is full, nothing is done.
local function hold_still()
  local all = redis.call('zrange', holders, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    if redis.call('hexists', notes, 'place:' .. all[i]) == 1 then
      tick()
      redis.call('zadd', holders, string.format('%.0f', all[i + 1] + stood_still), all[i])
    end
  end
end

if stood_still > 0 then pcall(hold_still) end

-- Whatever became of the other keys: where nobody holds, nothing is in use, and whoever holds what
-- nobody knows of holds all of it.
local used = held > 0 and tonumber(redis.call('hget', notes, 'used') or held * capacity) or 0

local function use(part)
  used = math.max(0, used + part)
  redis.call('hset', notes, 'used', used)
end

-- Who holds or waits does so no more. Whether it did.
local function leave(from_where, field)
  if redis.call('zrem', from_where, field) == 0 then return false end
  if from_where == holders then use(-tonumber(redis.call('hget', notes, field) or capacity)) end
  redis.call('hdel', notes, field, 'place:' .. field)
  return true
end

-- The part that somebody waits for, if it still does; until when it may have it unasked: to the end of its
-- place, and no longer than its lease; the secret of its last sign of life.
local function awaited_by(field)
  local place = redis.call('hget', notes, 'place:' .. field) or ''
  local ends, secret, lease = place:match('^(%d+) (%d+) (%d+)$')
  local until_when = ends and ends + behind or 0
  if until_when > now then
    return tonumber(redis.call('hget', notes, field)), math.min(until_when, now + tonumber(lease)), secret
  end
  leave(queue, field)
end

local function enter(field, part, until_when)
  local number, err = draw(1)
  if not number then return nil, err end
  redis.call('zadd', holders, string.format('%.0f', until_when), field)
  redis.call('zrem', queue, field)
  redis.call('hset', notes, field, part)
  use(part)
  if kind == 'rw' and part == capacity then redis.call('hset', notes, 'written', 1) end
  return number
end

-- Who has waited while somebody wrote reads before the next one writes.
local function let_readers_in(let_in)
  if kind ~= 'rw' or used >= capacity then return end
  if redis.call('hdel', notes, 'written') == 0 then return end
  for _, field in ipairs(redis.call('zrange', queue, 0, -1)) do
    local part, until_when, secret = awaited_by(field)
    if part == 1 then let_in(field, part, until_when, secret) end
  end
end

local function let_go()
  for _, over in ipairs(redis.call('zrange', holders, '-inf', now, 'BYSCORE')) do
    leave(holders, over)
  end
end

-- Lets in whoever may, in their order, and tells them. The number of the grant of the one who asks, if
-- it is among them; and what kept anybody out who might.
local function admit(asks)
  let_go()
  local called, granted, refusal = {}, nil, nil
  local function let_in(field, part, until_when, secret)
    local number, err = enter(field, part, until_when)
    refusal = refusal or err
    if not number then return false end
    if field == asks then
      granted = number
    else
      called[#called + 1] = field .. string.format('=%.0f@', number) .. secret
    end
    return true
  end
  let_readers_in(let_in)
  local head = redis.call('zrange', queue, 0, 0)[1]
  while head do
    local part, until_when, secret = awaited_by(head)
    if part and (part > capacity - used or not let_in(head, part, until_when, secret)) then break end
    head = redis.call('zrange', queue, 0, 0)[1]
  end
  if #called > 0 then redis.pcall('publish', channel, from .. ' ' .. table.concat(called, ' ')) end
  return granted, refusal
end

local function remember_capacity()
  redis.call('hset', notes, 'kind', kind, 'capacity', capacity, 'set', 1)
  redis.call('pexpire', notes, string.format('%.0f', REMEMBERED))
end

-- Nobody holds or waits. Only a capacity that was set outlives them.
local function forget()
  redis.call('del', notes)
  if is_set then remember_capacity() end
end

-- The keys end together, so that none of them says what the others no longer know. The notes of a capacity that
-- was set outlive the others: forget() clears them then.
local function settle()
  if redis.call('exists', holders, queue) == 0 then return forget() end
  local last = redis.call('zrange', holders, -1, -1, 'WITHSCORES')[2]
  local waited_for = redis.call('pttl', queue)
  local ms = math.max(last and last - now or 0, waited_for)
  if ms <= 0 then ms = patience end
  redis.call('pexpire', holders, ms)
  redis.call('pexpire', queue, ms)
  if waited_for > 0 then -- nobody else needs the clock, and a refusal then changes nothing
    tick()
  end
  redis.call('pexpire', notes, string.format('%.0f', is_set and math.max(ms, REMEMBERED) or ms))
end

-- Whether nobody holds or waits any more. What was known is forgotten then, also a capacity that was set.
local function deserted()
  redis.call('zrem', holders, 'parklock:nobody') -- changes nothing; a replica refuses it
  let_go()
  for _, field in ipairs(redis.call('zrange', queue, 0, -1)) do
    awaited_by(field)
  end
  if redis.call('exists', holders, queue) > 0 then return false end
  redis.call('del', notes)
  known, capacity, is_set = nil, tonumber(ARGV[3]), false
  return true
end

-- When the first of the holders will have to go, in ms.
local function shortest_lease()
  local first = redis.call('zrange', holders, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - now) or patience
end

if known and known ~= kind and not deserted() then return redis.error_reply('CONFLICT ' .. known) end

