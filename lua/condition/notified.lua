-- The notified waiters of a condition: a sorted set of owner fields. The score says until when the client keeps the
-- notification (see lua/line/scored.lua). It has the same functions as lua/line/zset.lua, which has the holders of
-- locks.
--
-- A condition is a line whose waiters are let in by notifications. A notification that no waiter has yet is room in the
-- line: the part of the capacity that is free. A waiter that is let in holds its notification until it has taken the
-- lock again and released it, and then uses it up (taken.lua). If it releases the notification or dies, the
-- notification goes to the next waiter.
--
-- Besides them, with scores below any time:
--   #condition <capacity>   the notifications that no waiter has yet, minus UNUSED
--   =<owner field>          this waiter was woken without a notification, so it has none to pass on

local IDLE = 3600000 -- no lease of a notified waiter ends before somebody is notified: an hour, in ms

local requests = KEYS[5] -- see lua/latch/requests.lua; only notify.lua needs this key

local function open_holders(noted)
  local first = redis.call('zrange', lock, '0', '0', 'WITHSCORES')
  local known = first[1] and first[1]:match('^#(%a+ %d+)$')
  said, used, lock_is_new = nil, capacity, not first[1]
  if known then
    said, used = first[1], first[2] + UNUSED
  end
  -- Another program's sorted set is refused as a key of another type is: a hash command says WRONGTYPE.
  if first[1] and not known then redis.call('hlen', lock) end
  local known_kind, known_capacity = (known or noted or ''):match('^(%a+) (%d+)$')
  return known_kind, tonumber(known_capacity)
end

-- Lets these waiters in: each has a notification from now on.
local function put_in(entries, number)
  local added = {}
  for _, entry in ipairs(entries) do
    added[#added + 1] = string.format('%.0f', now + entry.ms)
    added[#added + 1] = entry.field
  end
  redis.call('zadd', lock, unpack(added))
  used = used + #entries
  return number
end

-- A notification outlives the session of its client by a short lease at most, so none is judged by it.
local function first_holders() return {} end

-- Makes this many notifications available to other waiters. If nobody waits, they are dropped: a condition
-- remembers nothing.
local function pass_on(count)
  if redis.call('exists', line) == 1 then used = used - count end
end

-- Removes a notified waiter. Returns whether it was there, and whether it had a notification.
local function remove(field)
  if redis.call('zrem', lock, field) == 0 then return false, false end
  return true, redis.call('zrem', lock, note_of(field)) == 0
end

local function end_hold(field)
  local was_there, had_one = remove(field)
  if had_one then pass_on(1) end
  return was_there
end

-- Takes their notifications from waiters whose leases are over, since their clients are silent: at most BOUND of them.
local function let_go()
  local over = redis.call('zrange', lock, '0', now, 'BYSCORE', 'LIMIT', '0', BOUND)
  for _, field in ipairs(over) do
    end_hold(field)
  end
end

local function end_all_holds()
  local named = redis.call('zrange', lock, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', '0', BOUND)
  local gone = redis.call('zcount', lock, '(' .. now, '+inf')
  redis.call('del', lock)
  used, said = capacity, nil
  return gone, named
end

local function shortest_lease()
  local first = redis.call('zrange', lock, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  return first[2] and math.max(1, first[2] - now) or IDLE
end

-- Writes how many notifications no waiter has yet: never more than there are waiters.
local function settle_holders(is_waited_for)
  local left = capacity - used
  if left > 0 then left = is_waited_for and math.min(left, redis.call('zcard', line)) or 0 end
  used = capacity - left
  local last = tonumber(redis.call('zrange', lock, '-1', '-1', 'WITHSCORES')[2] or -1)
  if left == 0 and last < 0 then
    redis.call('del', lock)
    return
  end
  -- The key has to outlive the leases: the next client that comes after one is over finds the notification here, and
  -- passes it on.
  local ms = math.max(1, last - now) + math.max(5 * rhythm, redis.call('pttl', line))
  local says = '#' .. kind .. ' ' .. capacity
  if said and said ~= says then redis.call('zrem', lock, said) end
  redis.call('zadd', lock, string.format('%.0f', used - UNUSED), says)
  said = says
  redis.call('pexpire', lock, string.format('%.0f', ms))
end

