-- Enter, or wait for it: also the sign of life of somebody who waits.
--
-- KEYS   see queue.lua
-- ARGV   ..., owner field, the part wanted, lease in ms, manner ('wait': queue if there is no room now,
--        otherwise now or never), the owner field within whose hold it needs no room ('': nobody's), its place as
--        it was answered before (0: it never was), and a secret: a grant that is told and not asked for
--        repeats it, so that whoever waits knows that it is no other's message
-- Reply  1, grant                entered; the grant is the new value of the counter
--        0, TTL in ms, place     there is no room, for so long at the most; the place is where it waits
--        an error of CONFLICT: others use the name for another kind, or with another capacity, and
--        nobody has set one
--        an error of PERMITS: there is not so much in all
--
-- Run again for the same owner field, it finds its own work: in the queue it keeps its place, and what
-- it was let into meanwhile it keeps for its whole lease. Whoever was skipped, or comes under another
-- owner field since an answer was lost, says its place and has it again.

local field, part, lease, manner, beneath, had, secret =
  ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11], tonumber(ARGV[12]), ARGV[13]

-- How many times `patience` the server may stand still before the queue itself is over.
local STALL = 5

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if not had or had < 0 then return redis.error_reply('ERR place out of range') end
if not (secret or ''):match('^%d+$') then return redis.error_reply('ERR secret out of range') end

local function holds(who)
  local until_when = tonumber(redis.call('zscore', holders, who) or 0)
  return until_when > now and until_when
end

local function refuse()
  settle()
  return { HELD, shortest_lease(), tonumber(redis.call('zscore', queue, field) or 0) }
end

local function granted(number, until_when)
  redis.call('hdel', notes, 'place:' .. field)
  redis.call('zadd', holders, string.format('%.0f', math.max(until_when or 0, now + lease)), field)
  settle()
  return { GRANTED, number }
end

local function attempt()
  -- The other keys may have expired since the last script ran.
  if is_set and redis.call('exists', holders, queue) == 0 then forget() end
  local until_when = holds(field)
  if until_when then
    local number, err = draw(1)
    if not number then error(err, 0) end
    return granted(number, until_when)
  end
  if redis.call('zscore', holders, field) then leave(holders, field) end -- over: it begins anew
  if beneath ~= '' and holds(beneath) then
    local number, err = enter(field, part, now + lease)
    if not number then error(err, 0) end
    return granted(number)
  end
  if not redis.call('zscore', queue, field) then
    local last = redis.call('zrange', queue, -1, -1, 'WITHSCORES')[2]
    local place = math.max(micros, last and last + 1 or 0)
    if had > 0 then place = math.min(place, had) end
    redis.call('zadd', queue, string.format('%.0f', place), field)
  end
  redis.call('hset', notes, 'kind', kind, 'capacity', capacity, field, part,
    'place:' .. field, string.format('%.0f %s %.0f', now + patience - behind, secret, lease))
  redis.call('pexpire', queue, math.max(patience * STALL, redis.call('pttl', queue)))
  local number, err = admit(field)
  if number then return granted(number) end
  if err then error(err, 0) end
  if manner ~= 'wait' then leave(queue, field) else rhythm = patience end
  return refuse()
end

-- Who may not do all of it has done nothing of it. Only a key that is new has no TTL yet.
local function undo()
  pcall(leave, holders, field)
  pcall(leave, queue, field)
  pcall(settle)
  for i = 2, 4 do
    if redis.pcall('pttl', KEYS[i]) == -1 then redis.pcall('del', KEYS[i]) end
  end
end

local waits, has = redis.call('zscore', queue, field), redis.call('zscore', holders, field)
-- Who stands here stays, though the memory is full: after a write that needs none, the others may.
if waits or has then redis.call('zrem', holders, 'parklock:nobody') end
-- Whoever was answered before waits already, if under another name.
local newcomer = not waits and not has and had == 0
local disagrees = newcomer and known and not is_set and capacity ~= tonumber(ARGV[3]) and not deserted()
if disagrees then
  return redis.error_reply('CONFLICT ' .. kind .. ' with a capacity of ' .. capacity)
end
-- More than there is could be waited for without an end.
if part > capacity and not has and (is_set or not deserted() or part > capacity) then
  leave(queue, field)
  admit()
  settle()
  return redis.error_reply(string.format('PERMITS %.0f of %.0f', part, capacity))
end
local fine, reply = pcall(attempt)
if fine then return reply end
undo()
return redis.error_reply(type(reply) == 'table' and reply.err or tostring(reply))
