-- Take each of these locks if it is free, or has room, and nobody waits for it. This puts nobody in line.
--
-- KEYS   the token counter, then for each plain lock: the lock, its line; for each lock of another kind: the holders, the line,
--        the notes
-- ARGV   the floor of the counter, then for each lock: owner field, and what it asks for in one argument, since each costs the
--        server time: the lease in ms; for another kind than a plain lock, after blanks, also the part, the kind and its capacity
-- Reply  for each lock two items:
--          1, grant   taken; the grant is the new value of the counter
--          2, 0       others hold it or wait for it: ask for it alone, with acquire.lua
--         -1, text    refused, nothing was changed
--
-- The plain locks are distinct. A script that runs again for the same owner field finds its own work, and answers "taken" or
-- "ask for it alone".

-- Usually all of them are free. Then one command checks that, and one draws all numbers.
local locks = (#ARGV - 1) / 2
local first = redis.pcall('exists', unpack(KEYS, 2)) == 0 and draw(locks)

local function take_plain(i, lock, line, field, lease)
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  if first then return put(lock, field, lease, first + i - 1) end
  if redis.call('exists', lock, line) ~= 0 then
    redis.call('hdel', lock, 'parklock:nobody') -- changes nothing, and a replica refuses it
    -- The notes, which this script has not, may say that nobody listens to a client with a session (see sessions.lua). It asks
    -- again, with acquire.lua.
    if redis.call('hexists', lock, field) == 0 or field:find('+', 1, true) then return CONTENDED, 0 end
    lease = math.max(lease, redis.call('pttl', lock))
  end
  local number, err = draw(1)
  if not number then return REFUSED, err end
  return put(lock, field, lease, number)
end

local UNUSED = 4503599627370496 -- 2^52: see scored.lua
local over = {} -- lease -> when it is over, for the requests of this call
local is_written = {} -- the holders' keys that this call has written

local function is_over(lease_text)
  if not over[lease_text] then
    local time = redis.call('time')
    over[lease_text] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease_text)
  end
  return over[lease_text]
end

-- How much of a lock is in use, and for how long its key lives. Nil if somebody waits, if the capacity was set, or if the
-- field is there already. This is the same as in zset_acquire_uncontended.lua; zset.lua says what lies in the key.
local function in_use_of(lock, line, notes, says, field)
  if first and not is_written[lock] then return 0, -2 end
  local keys = redis.call('exists', lock, line, notes)
  if keys == 0 then return 0, -2 end
  local scores = keys == 1 and redis.call('zmscore', lock, says, '#line', field, '#set') or {}
  if not scores[1] or scores[2] or scores[3] or scores[4] then return end
  return scores[1] + UNUSED, redis.call('pttl', lock)
end

local wishes = {} -- what requests ask for, by their argument: most are alike

local function read_wish(wish)
  local lease_text, part, says, capacity = wish:match('^(%d+) (%d+) (%a+ (%d+))$')
  if out_of_range(lease_text) then return nil, 'ERR lease out of range' end
  part, capacity = tonumber(part), tonumber(capacity)
  if part < 1 then return nil, 'ERR part out of range' end
  return {
    lease_text = lease_text, lease = tonumber(lease_text), part = part, capacity = capacity, says = '#' .. says,
    alone = string.format('%.0f', part - UNUSED)
  }
end

local function take_part(i, lock, line, notes, field, wish)
  local wished, err, number = wishes[wish]
  if not wished then
    wished, err = read_wish(wish)
    if not wished then return REFUSED, err end
    wishes[wish] = wished
  end
  local says, part = wished.says, wished.part
  local in_use, ttl = in_use_of(lock, line, notes, says, field)
  if not in_use or in_use + part > wished.capacity then return CONTENDED, 0 end
  number = first and first + i - 1
  if not number then number, err = draw(1) end
  if not number then return REFUSED, err end
  local used, added = in_use == 0 and wished.alone or string.format('%.0f', in_use + part - UNUSED)
  is_written[lock] = true
  if part == 1 then
    added = redis.pcall('zadd', lock, is_over(wished.lease_text), field, used, says)
  else
    added = redis.pcall('zadd', lock, is_over(wished.lease_text), field, used, says, -part, '=' .. field)
  end
  if type(added) ~= 'number' then return REFUSED, added.err end
  if ttl >= wished.lease then return GRANTED, number end
  local expiry = redis.pcall('pexpire', lock, wished.lease_text)
  if expiry == 1 then return GRANTED, number end
  -- The expiry was refused. No key ever remains without a TTL.
  if ttl == -2 then
    redis.pcall('del', lock)
  else
    redis.pcall('zrem', lock, field, '=' .. field)
    redis.pcall('zadd', lock, string.format('%.0f', in_use - UNUSED), says)
  end
  return REFUSED, type(expiry) == 'table' and expiry.err or 'ERR the expiry was not set'
end

-- An error of one lock is reported for that lock alone.
local reply, key = {}, 2
for i = 1, locks do
  local field, wish = ARGV[2 * i], ARGV[2 * i + 1]
  local is_plain = not wish:find(' ', 1, true)
  local fine, code, value
  if is_plain then
    fine, code, value = pcall(take_plain, i, KEYS[key], KEYS[key + 1], field, wish)
  else
    fine, code, value = pcall(take_part, i, KEYS[key], KEYS[key + 1], KEYS[key + 2], field, wish)
  end
  key = key + (is_plain and 2 or 3)
  if not fine then code, value = REFUSED, type(code) == 'table' and code.err or tostring(code) end
  reply[2 * i - 1], reply[2 * i] = code, value
end
return reply
