-- What acquire.lua and exchange.lua begin with: how a free lock is taken, and how one waits in line.
--
-- KEYS   the token counter first
-- ARGV   first: the floor of the counter; how long a line outlives its last sign of life, in ms; our
--        client ('': there are no lines)

local LONGEST_LEASE = 86400000 -- 24 h
local LAST_EXACT = 9007199254740991 -- 2^53 - 1: beyond it, Lua's numbers skip some integers
local GRANTED, HELD, RESERVED, UNHEARD, REFUSED = 1, 0, 2, 3, -1

local floor = tonumber(ARGV[1])
if not floor or floor < 0 or floor > LAST_EXACT then
  return redis.error_reply('ERR floor out of range')
end

local function foreign(err)
  return string.find(err, 'not an integer', 1, true) or string.find(err, 'overflow', 1, true)
end

-- How many more grants this call may need: all are drawn with the first.
local wanted = 1
local drawn, last = 1, 0

-- A counter that is lost, rolled back or overwritten by a stranger is lifted to the floor: the
-- server's own clock in microseconds, which passes faster than grants are made.
local function draw()
  if drawn > last then
    local top = redis.pcall('incrby', KEYS[1], wanted)
    if type(top) == 'table' then
      if not foreign(top.err) then return nil, top.err end
      top = 0
    end
    if top - wanted + 1 < floor or top > LAST_EXACT then
      top = floor + wanted - 1
      local set = redis.pcall('set', KEYS[1], string.format('%.0f', top))
      if set.err then return nil, set.err end
    end
    drawn, last = top - wanted + 1, top
  end
  drawn = drawn + 1
  return drawn - 1
end

-- The expiry comes last and is undone with the field: no key is ever left without a TTL.
local function put(lock, field, lease)
  local grant, err = draw()
  if not grant then return REFUSED, err end
  local set = redis.pcall('hset', lock, field, 1)
  if type(set) == 'table' then return REFUSED, set.err end
  local expiry = redis.pcall('pexpire', lock, lease)
  if expiry ~= 1 then
    redis.call('hdel', lock, field)
    return REFUSED, type(expiry) == 'table' and expiry.err or 'ERR the expiry was not set'
  end
  return GRANTED, grant
end

local function out_of_range(lease)
  local ms = tonumber(lease)
  return not ms or ms < 1 or ms > LONGEST_LEASE
end

local client = ARGV[3]

-- A write that changes nothing: a replica refuses it, so what follows is always a primary's word.
local function refusal(lock)
  local write = redis.pcall('hdel', lock, 'parklock:nobody')
  return type(write) == 'table' and write.err
end

-- Enters a client behind those who came before it; one that is in the line keeps its place. Whether
-- it stands there now.
local function line_up(line)
  local time = redis.pcall('time')
  if time.err then return false end
  local added = redis.pcall('zadd', line, 'NX', time[1] * 1000000 + time[2], client)
  if type(added) == 'table' then return false end
  if redis.pcall('pexpire', line, ARGV[2]) == 1 then return true end
  redis.pcall('zrem', line, client)
  return false
end

-- A free lock that others wait for: the head of the line may have it, and whoever has waited for a
-- head that did not come, which then leaves the line.
local function take_in_line(lock, line, field, lease, manner)
  local head = redis.call('zrange', line, 0, 0)[1]
  if head and head ~= client and manner ~= 'insist' and manner ~= 'once' then return RESERVED, 0 end
  local code, value = put(lock, field, lease)
  if code == GRANTED then
    redis.pcall('zrem', line, client)
    if head and manner == 'insist' then redis.pcall('zrem', line, head) end
  end
  return code, value
end

-- Manner: 'look' | 'wait': line up if it is not ours yet | 'insist': as wait, but do not let the
-- head of the line go first | 'once': as insist, without lining up and without a claim on the head.
local function attempt(lock, line, field, lease, manner)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if redis.call('exists', lock, line) == 0 then return put(lock, field, lease) end
  local err = refusal(lock)
  if err then return REFUSED, err end
  local code, value = HELD, redis.call('pttl', lock)
  if value == -2 then
    code, value = take_in_line(lock, line, field, lease, manner)
  elseif redis.call('hexists', lock, field) == 1 then
    return put(lock, field, math.max(lease, value)) -- run once more: it finds its own work
  end
  local waits = (manner == 'wait' or manner == 'insist') and client ~= ''
  if waits and (code == HELD or code == RESERVED) then
    if not line_up(line) and code == HELD then code = UNHEARD end
  end
  return code, value
end

-- Whatever goes wrong with one lock is said of that one alone.
local function guarded(work, ...)
  local fine, code, value = pcall(work, ...)
  if fine then return code, value end
  return REFUSED, type(code) == 'table' and code.err or tostring(code)
end

