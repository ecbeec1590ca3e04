-- Enter, or wait for it: also the sign of life of somebody who waits.
--
-- KEYS   see queue.lua
-- ARGV   ..., owner field, the part wanted, lease in ms, manner ('wait': queue if there is no room now,
--        otherwise now or never), the owner field within whose hold it needs no room ('': nobody's), which sign of life it is
-- Reply  1, grant        entered; the grant is the new value of the counter
--        0, TTL in ms    there is no room, for so long at the most
--        an error of CONFLICT: others use the name for another kind, or with another capacity
--
-- Run again for the same owner field, it finds its own work: in the queue it keeps its place, and what
-- it was let into meanwhile it keeps for its whole lease.

local field, part, lease, manner, beneath =
  ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end

local function holds(who)
  local until_when = tonumber(redis.call('zscore', holders, who) or 0)
  return until_when > now and until_when
end

local function refuse()
  clear()
  return { HELD, shortest_lease() }
end

local function granted(number, until_when)
  redis.call('zadd', holders, string.format('%.0f', math.max(until_when or 0, now + lease)), field)
  keep(math.max(lease, patience))
  return { GRANTED, number }
end

local function attempt()
  local until_when = holds(field)
  if until_when then
    local number, err = draw(1)
    if not number then return redis.error_reply(err) end
    return granted(number, until_when)
  end
  if beneath ~= '' and holds(beneath) then
    local number, err = enter(field, part, now + lease)
    if not number then return redis.error_reply(err) end
    return granted(number)
  end
  if not redis.call('zscore', queue, field) then
    local last = redis.call('zrange', queue, -1, -1, 'WITHSCORES')[2]
    local place = math.max(micros, last and last + 1 or 0)
    redis.call('zadd', queue, string.format('%.0f', place), field)
  end
  redis.call('hset', notes, 'kind', kind, 'capacity', capacity, field, part,
    'place:' .. field, string.format('%.0f %s %.0f', now + patience, ARGV[12], lease))
  local number = admit(field)
  if number then return granted(number) end
  if manner ~= 'wait' then leave(queue, field) end
  keep(patience)
  return refuse()
end

if known and known ~= kind then return redis.error_reply('CONFLICT ' .. known) end
local newcomer = not redis.call('zscore', queue, field) and not redis.call('zscore', holders, field)
if newcomer and known and capacity ~= tonumber(ARGV[3]) then
  return redis.error_reply('CONFLICT ' .. kind .. ' with a capacity of ' .. capacity)
end
return attempt()
