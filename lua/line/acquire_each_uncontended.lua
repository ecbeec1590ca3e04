-- The uncontended path for several requests: each takes its part if there is room and nobody waits. It runs before the functions of
-- the line are created, since creating them takes the server longer than ten such requests. acquire_each.lua continues from here
-- with those that are left.

local locks = (#KEYS - 1) / 3
local answers, are_all_done = {}, true
local wish_of -- what a request asks for, by its argument

do -- a script has 200 local variables at most
  -- Usually all locks are free. Then one command checks that, and one draws all numbers.
  local first = redis.pcall('exists', unpack(KEYS, 2)) == 0 and draw(locks)
  local is_written = {} -- the holders' keys that this call has written
  local is_waited_for = {} -- the holders' keys of those that are left: a later request for one of them does not overtake
  local wishes = {} -- what requests ask for, by their argument: most are alike
  local over = {} -- lease -> when it is over, if it begins now

  function wish_of(text)
    if wishes[text] then return wishes[text] end
    local lease_text, part_text, kind, capacity_text, how = text:match('^(%d+) (%d+) (%a+) (%d+)(.*)$')
    local wish = {
      lease_text = lease_text, lease = tonumber(lease_text or nil), part = tonumber(part_text or nil), kind = kind,
      capacity = tonumber(capacity_text or nil), says = kind and '#' .. kind .. ' ' .. capacity_text, manner = how == ' once' and 'once' or 'wait'
    }
    if out_of_range(lease_text) then
      wish.refused = 'ERR lease out of range'
    elseif wish.part < 1 then
      wish.refused = 'ERR part out of range'
    else
      local time = not over[lease_text] and redis.call('time')
      if time then over[lease_text] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + wish.lease) end
      wish.over, wish.used = over[lease_text], string.format('%.0f', wish.part - 4503599627370496)
    end
    wishes[text] = wish
    return wish
  end

  -- How much of a lock is in use, and for how long its key lives. Nil if somebody waits, if the capacity was set, if the
  -- field is there already, or if the key has no TTL. This is the same as in zset_acquire_uncontended.lua; zset.lua says what
  -- lies in the key.
  local function in_use_of(lock, line, notes, says, field)
    if is_waited_for[lock] then return end
    if first and not is_written[lock] then return 0, -2 end
    local keys = redis.pcall('exists', lock, line, notes)
    if keys == 0 then return 0, -2 end
    local scores = keys == 1 and redis.pcall('zmscore', lock, says, '#line', field, '#set') or {}
    if not scores[1] or scores[2] or scores[3] or scores[4] then return end
    local ttl = redis.call('pttl', lock)
    if ttl >= 0 then return scores[1] + 4503599627370496, ttl end
  end

  -- The grant; or nil, perhaps with the reason why the request was refused.
  local function take_uncontended(i, lock, line, notes, field, wish)
    if wish.refused then return nil, wish.refused end
    local in_use, ttl = in_use_of(lock, line, notes, wish.says, field)
    if not in_use or in_use + wish.part > wish.capacity then return end
    local number, err = first and first + i - 1
    if not number then number, err = draw(1) end
    if not number then return nil, err end
    local used, added = in_use == 0 and wish.used or string.format('%.0f', in_use + wish.part - 4503599627370496)
    is_written[lock] = true
    if wish.part == 1 then
      added = redis.pcall('zadd', lock, wish.over, field, used, wish.says)
    else
      added = redis.pcall('zadd', lock, wish.over, field, used, wish.says, -wish.part, '=' .. field)
    end
    if type(added) ~= 'number' then return nil, added.err end
    if ttl >= wish.lease then return number end
    local expiry = redis.pcall('pexpire', lock, wish.lease_text)
    if expiry == 1 then return number end
    -- The expiry was refused. No key ever remains without a TTL.
    if ttl == -2 then
      redis.pcall('del', lock)
    else
      redis.pcall('zrem', lock, field, '=' .. field)
      redis.pcall('zadd', lock, string.format('%.0f', in_use - 4503599627370496), wish.says)
    end
    return nil, type(expiry) == 'table' and expiry.err or 'ERR the expiry was not set'
  end

  -- An error of one lock is reported for that lock alone.
  for i = 1, locks do
    local lock, text = KEYS[3 * i - 1], ARGV[3 * i + 1]
    local fine, number, refused = pcall(take_uncontended, i, lock, KEYS[3 * i], KEYS[3 * i + 1], ARGV[3 * i], wish_of(text))
    if not fine then number, refused = nil, type(number) == 'table' and number.err or tostring(number) end
    answers[i] = number or refused and { REFUSED, refused }
    if not answers[i] then are_all_done, is_waited_for[lock] = false, true end
  end
end
if are_all_done then return answers end

