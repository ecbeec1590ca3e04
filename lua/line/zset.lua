-- The holders of a fair lock, a read-write lock or a semaphore: a sorted set of owner fields. The score is the end of the
-- holder's lease. See also scored.lua.
--
-- Besides the holders, with scores below any time:
--   #<kind> <capacity>   how much of it is in use, minus UNUSED: always the first member
--   #set                 the capacity was set explicitly: then the second member. Renewals touch this key alone, and the
--                        notes may expire meanwhile
--   #line                somebody waits: a newcomer has to look at the line
--   =<owner field>       the part that it holds, negative; missing if the part is one
-- All of this is one key: so it expires together, and an uncontended call needs no other key.

local SET = '-3377699720527360' -- -2^51 - 2^50
local WAITED_FOR = '-2251799813685248' -- -2^51

-- The kind and the capacity that are in use, from the holders' key, or otherwise from the notes of the waiters or of a
-- capacity that was set explicitly.
local function open_holders(noted)
  local first = redis.call('zrange', lock, '0', '1', 'WITHSCORES')
  local known = first[1] and first[1]:match('^#(%a+ %d+)$')
  said, used, lock_is_new = nil, 0, not first[1]
  if known then
    said, used = first[1], first[2] + UNUSED
    is_set = is_set or first[3] == '#set'
  end
  is_foreign = first[1] and not known
  if is_foreign then used = redis.call('zcard', lock) * capacity end
  local known_kind, known_capacity = (known or noted or ''):match('^(%a+) (%d+)$')
  return known_kind, tonumber(known_capacity)
end

-- Lets these entries in: their grants have consecutive numbers from this one on. What is in use is written by the same
-- command: the rest of the script may fail while the slot moves.
local function put_in(entries, number)
  local added = {}
  for _, entry in ipairs(entries) do
    local part = entry.part
    added[#added + 1] = string.format('%.0f', now + entry.ms)
    added[#added + 1] = entry.field
    if part ~= 1 then
      added[#added + 1] = -part
      added[#added + 1] = note_of(entry.field)
    end
    used = used + part
  end
  said = said or '#' .. kind .. ' ' .. capacity
  redis.call('zadd', lock, string.format('%.0f', used - UNUSED), said, unpack(added))
  return number
end

-- This writes how much is in use before it removes the hold: the rest of the script may fail, and nobody counts the holds again.
local function end_hold(field)
  local scores = redis.call('zmscore', lock, field, note_of(field))
  if not scores[1] then return false end
  used = math.max(0, used - (scores[2] and -scores[2] or 1))
  if said then redis.call('zadd', lock, string.format('%.0f', used - UNUSED), said) end
  redis.call('zrem', lock, field, note_of(field))
  return true
end

-- Removes holds whose leases are over, at most SHARE of them, in the same order. Further calls remove the rest, which counts as held
-- until then.
local function let_go()
  if is_foreign then return end
  local over = redis.call('zrange', lock, '0', now, 'BYSCORE', 'LIMIT', '0', SHARE)
  if #over == 0 then return end
  local gone = {}
  for i, field in ipairs(over) do
    gone[i] = note_of(field)
  end
  for _, part in ipairs(redis.call('zmscore', lock, unpack(gone))) do
    used = used - (part and -part or 1)
  end
  used = math.max(0, used)
  if said then redis.call('zadd', lock, string.format('%.0f', used - UNUSED), said) end
  for _, field in ipairs(over) do
    gone[#gone + 1] = field
  end
  redis.call('zrem', lock, unpack(gone))
end

-- The owner fields of the holders whose leases end first, SHARE of them: so those whose clients renew them no longer.
local function first_holders()
  return is_foreign and {} or redis.call('zrange', lock, '0', '+inf', 'BYSCORE', 'LIMIT', '0', SHARE)
end

-- Removes all holds. Returns how many there were, and the owner fields of the first ones.
local function end_all_holds()
  local named = redis.call('zrange', lock, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', '0', BOUND)
  local gone = redis.call('zcount', lock, '(' .. now, '+inf')
  redis.call('del', lock)
  used, said, is_foreign = 0, nil, false
  return gone, named
end

-- How long the shortest lease still lasts, in ms (-1: the key has no TTL).
local function shortest_lease()
  if is_foreign then return redis.call('pttl', lock) end
  local first = redis.call('zrange', lock, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  return first[2] and math.max(1, first[2] - now)
end

-- Writes how much is in use and whether anybody waits, and lets the key live as long as the longest lease. Without
-- holders, it deletes the key.
local function settle_holders(is_waited_for)
  if is_foreign then return end
  local last = redis.call('zrange', lock, '-1', '-1', 'WITHSCORES')
  if not last[2] or tonumber(last[2]) < 0 then
    redis.call('del', lock)
    return
  end
  local says = '#' .. kind .. ' ' .. capacity
  if said and said ~= says then redis.call('zrem', lock, said) end
  if is_waited_for then
    redis.call('zadd', lock, string.format('%.0f', used - UNUSED), says, WAITED_FOR, '#line')
  else
    redis.call('zadd', lock, string.format('%.0f', used - UNUSED), says)
    redis.call('zrem', lock, '#line')
  end
  if is_set then redis.call('zadd', lock, SET, '#set') end
  said = says
  redis.call('pexpire', lock, string.format('%.0f', math.max(1, last[2] - now)))
end

