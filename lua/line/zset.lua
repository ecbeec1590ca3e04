-- The holders of a fair lock, a read-write lock or a semaphore, or the notified waiters of a condition: a sorted set of owner
-- fields. The score is the end of the lease, in ms of the server's clock, which alone decides what is over.
--
-- A condition is a line whose waiters are let in by notifications. A notification that no waiter has yet is room in the
-- line: the part of the capacity that is free. A waiter that is let in holds its notification until it has taken the
-- lock again and released it, and then uses it up (lua/condition/taken.lua). If it releases the notification or dies, the
-- notification goes to the next waiter.
--
-- Besides them, with scores below any time:
--   #<kind> <capacity>   how much of it is in use, minus UNUSED: always the first member
--   #set                 the capacity was set explicitly: then the second member. Renewals touch this key alone, and the
--                        notes may expire meanwhile
--   #line                somebody waits: a newcomer has to look at the line. Not in a condition
--   =<owner field>       the part that it holds, negative; missing if the part is one. In a condition: this waiter was woken without a
--                        notification, so it has none to pass on
-- All of this is one key: so it expires together, and an uncontended call needs no other key.

local UNUSED = 4503599627370496 -- 2^52: the score of the first member is this much below what is in use

local lock, line, notes, channel
local kind, capacity, is_set = ARGV[2], tonumber(ARGV[3]), false
local used -- how much of the capacity is in use
local said -- the member with the kind and the capacity, if there is one
local lock_is_new -- the key did not exist when the script began
local is_foreign -- another program has written the key: it counts as held, and its members are left alone

-- Two writes that change nothing; a replica refuses both. The first needs memory: so a newcomer is refused if the
-- memory is full. The second needs none, and after it Redis allows every write: so holders and waiters can continue.
local function check_writable(is_newcomer)
  if is_newcomer then
    redis.call('zadd', lock, 'XX', '0', 'parklock:nobody')
  else
    redis.call('zrem', lock, 'parklock:nobody')
  end
end

-- For how much longer this owner holds it, in ms. Nil or false if it does not. The second result: whether its hold is
-- over, but no script has removed it yet.
local function holds(field)
  local until_when = tonumber(redis.call('zscore', lock, field) or nil)
  local is_over = until_when and until_when <= now
  return until_when and not is_over and until_when - now, is_over
end

-- Extends a hold to this long from now. The caller never passes less than the holder has left.
local function prolong(field, ms)
  redis.call('zadd', lock, 'XX', string.format('%.0f', now + ms), field)
end

-- A client keeps no idle hold of these kinds.
local KEPT, WAITS, TRIES
local function tell_keeper() end

-- The kind and the capacity that are in use, from the holders' key, or otherwise from the notes of the waiters or of a
-- capacity that was set explicitly. Of a condition without notifications all is in use: they are its room.
local function open_holders(noted)
  local first = redis.call('zrange', lock, '0', '1', 'WITHSCORES')
  local known = first[1] and first[1]:match('^#(%a+ %d+)$')
  said, used, lock_is_new = nil, kind == 'condition' and capacity or 0, not first[1]
  if known then
    said, used = first[1], first[2] + UNUSED
    is_set = is_set or first[3] == '#set'
  end
  is_foreign = first[1] and not known
  if is_foreign then used = redis.call('zcard', lock) * capacity end
  -- A condition refuses it as it refuses a key of another type: a hash command says WRONGTYPE.
  if is_foreign and kind == 'condition' then redis.call('hlen', lock) end
  local known_kind, known_capacity = (known or noted or ''):match('^(%a+) (%d+)$')
  return known_kind, tonumber(known_capacity)
end

-- Lets these entries in: their grants have consecutive numbers from this one on. What is in use is written by the same
-- command: the rest of the script may fail while the slot moves. So a new key gets its TTL here too.
local function put_in(entries, number)
  local was_used, is_new, longest, added = used, not said, 0, {}
  for _, entry in ipairs(entries) do
    local part = entry.part
    added[#added + 1] = string.format('%.0f', now + entry.ms)
    added[#added + 1] = entry.field
    if part ~= 1 then
      added[#added + 1] = -part
      added[#added + 1] = '=' .. entry.field
    end
    used, longest = used + part, math.max(longest, entry.ms)
  end
  said = said or '#' .. kind .. ' ' .. capacity
  redis.call('zadd', lock, string.format('%.0f', used - UNUSED), said, unpack(added))
  local expiry = is_new and redis.pcall('pexpire', lock, string.format('%.0f', longest)) or 1
  if expiry == 1 then return number end
  redis.call('del', lock)
  used, said = was_used, nil
  return nil, expiry.err
end

local end_hold, let_go

do -- a script has 200 local variables at most
  -- Ends these holds, whose notes have these scores. This writes how much is in use before it removes the holds: the rest of the
  -- script may fail, and nobody counts the holds again.
  local function take_out(fields, noted)
    local gone = {}
    for i, field in ipairs(fields) do
      used = used - (not noted[i] and 1 or kind == 'condition' and 0 or -noted[i])
      gone[2 * i - 1], gone[2 * i] = field, '=' .. field
    end
    used = math.max(0, used)
    -- A condition remembers nothing: a notification that nobody waits for is dropped.
    if kind == 'condition' and redis.call('exists', line) == 0 then used = capacity end
    if said then redis.call('zadd', lock, string.format('%.0f', used - UNUSED), said) end
    redis.call('zrem', lock, unpack(gone))
  end

  function end_hold(field)
    local scores = redis.call('zmscore', lock, field, '=' .. field)
    if not scores[1] then return false end
    take_out({ field }, { scores[2] })
    return true
  end

  -- Removes holds whose leases are over, at most SHARE of them, in the same order. Further calls remove the rest, which counts as held
  -- until then.
  function let_go()
    if is_foreign then return end
    local over = redis.call('zrange', lock, '0', now, 'BYSCORE', 'LIMIT', '0', SHARE)
    if #over == 0 then return end
    local names = {}
    for i, field in ipairs(over) do
      names[i] = '=' .. field
    end
    take_out(over, redis.call('zmscore', lock, unpack(names)))
  end
end

-- The owner fields of the holders whose leases end first, SHARE of them: so those whose clients renew them no longer. A notification
-- outlives the session of its client by a short lease at most, so none is judged by it.
local function first_holders()
  return (is_foreign or kind == 'condition') and {} or redis.call('zrange', lock, '0', '+inf', 'BYSCORE', 'LIMIT', '0', SHARE)
end

-- Removes all holds. Returns how many there were, and the owner fields of the first ones.
local function end_all_holds()
  local named = redis.call('zrange', lock, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', '0', BOUND)
  local gone = redis.call('zcount', lock, '(' .. now, '+inf')
  redis.call('del', lock)
  used, said, is_foreign = kind == 'condition' and capacity or 0, nil, false
  return gone, named
end

-- How long the shortest lease still lasts, in ms (-1: the key has no TTL). No lease of a notified waiter ends before somebody is
-- notified: then it is an hour.
local function shortest_lease()
  if is_foreign then return redis.call('pttl', lock) end
  local first = redis.call('zrange', lock, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  return first[2] and math.max(1, first[2] - now) or kind == 'condition' and 3600000
end

-- Writes how much is in use and whether anybody waits, and lets the key live as long as the longest lease. Without
-- holders, it deletes the key. A condition keeps as many notifications that no waiter has yet as there are waiters.
local function settle_holders(is_waited_for)
  local SET, WAITED_FOR = '-3377699720527360', '-2251799813685248' -- -2^51 - 2^50, -2^51
  if is_foreign then return end
  local is_condition, kept = kind == 'condition', 0
  if is_condition then
    if is_waited_for and used < capacity then kept = math.min(capacity - used, redis.call('zcard', line)) end
    used = capacity - kept
  end
  local last = tonumber(redis.call('zrange', lock, '-1', '-1', 'WITHSCORES')[2] or -1)
  if last < 0 and kept == 0 then
    redis.call('del', lock)
    said = nil
    return
  end
  local says = '#' .. kind .. ' ' .. capacity
  if said and said ~= says then redis.call('zrem', lock, said) end
  if is_waited_for and not is_condition then
    redis.call('zadd', lock, string.format('%.0f', used - UNUSED), says, WAITED_FOR, '#line')
  else
    redis.call('zadd', lock, string.format('%.0f', used - UNUSED), says)
    redis.call('zrem', lock, '#line')
  end
  if is_set then redis.call('zadd', lock, SET, '#set') end
  said = says
  -- The key of a condition has to outlive the leases: the next client that comes after one is over finds the notification here,
  -- and passes it on.
  local longer = is_condition and math.max(5 * rhythm, redis.call('pttl', line)) or 0
  redis.call('pexpire', lock, string.format('%.0f', math.max(1, last - now) + longer))
end

