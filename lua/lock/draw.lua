-- The tools to grant a free lock: the number of a grant, and the holder's field.
--
-- KEYS   the token counter first
-- ARGV   first: the floor of the counter

local LONGEST_LEASE = 86400000 -- 24 h
local LAST_EXACT = 9007199254740991 -- 2^53 - 1: beyond it, Lua's numbers skip some integers
local AHEAD = 1099511627776 -- 2^40: a counter that is this many microseconds, twelve days, ahead of the clock is not ours
local GRANTED, HELD, CONTENDED, REFUSED = 1, 0, 2, -1

local floor = tonumber(ARGV[1])
if not floor or floor < 0 or floor > LAST_EXACT then
  return redis.error_reply('ERR floor out of range')
end

local function out_of_range(lease)
  local ms = tonumber(lease)
  return not (ms and ms >= 1 and ms <= LONGEST_LEASE) -- so that the text 'nan' is out of range too
end

-- The number of the first of this many new grants: the next numbers of the counter. Counting alone would not do: a
-- replica that lagged, and takes over, would give the numbers of lost grants again. So no number is below the floor, which
-- is the server's clock, in microseconds, as our client knows it. A counter that is below the floor, lost or not ours
-- continues from the clock itself: another client may have known the clock better than ours. The clock is a little ahead
-- of the floor, so most grants only count up, which costs the server half as much as to write. The counter never gets far
-- ahead of the clock: a grant takes longer than a microsecond.
local function draw(grants)
  local top = redis.pcall('incrby', KEYS[1], grants == 1 and '1' or grants)
  local err = type(top) == 'table' and top.err
  if err and not (err:find('not an integer', 1, true) or err:find('would overflow', 1, true)) then return nil, err end
  -- A lost counter is 0, or 1 if draw_uncontended.lua has just found the loss.
  local last = not err and top - grants > 1 and top <= LAST_EXACT and top - grants
  if last and last + 1 >= floor and last <= floor + AHEAD then return last + 1 end
  local time = redis.pcall('time')
  local now = time.err and floor or math.max(floor, time[1] * 1000000 + time[2])
  if not last or last < now or last > now + AHEAD then last = now - 1 end
  redis.call('set', KEYS[1], string.format('%.0f', last + grants))
  return last + 1
end

-- The expiry comes last. If it fails, the field is undone: so no key ever remains without a TTL.
local function put(lock, field, lease, grant)
  local set = redis.pcall('hset', lock, field, '1')
  if type(set) == 'table' then return REFUSED, set.err end
  local expiry = redis.pcall('pexpire', lock, lease)
  if expiry ~= 1 then
    local is_new = set == 1
    local undone = is_new and redis.pcall('hdel', lock, field)
    -- A user that may not set an expiry may not be allowed to undo the field either. Then delete the whole key.
    if type(undone) == 'table' and redis.pcall('pttl', lock) == -1 then redis.pcall('del', lock) end
    return REFUSED, type(expiry) == 'table' and expiry.err or 'ERR the expiry was not set'
  end
  return GRANTED, grant
end

