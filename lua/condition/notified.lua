-- The notified waiters of a condition are holders (lua/line/zset.lua), but what is written of them at the end differs.
--
-- A condition is a line whose waiters are let in by notifications. A notification that no waiter has yet is room in the
-- line: the part of the capacity that is free. A waiter that is let in holds its notification until it has taken the
-- lock again and released it, and then uses it up (taken.lua). If it releases the notification or dies, the
-- notification goes to the next waiter.

local requests = KEYS[5] -- see lua/latch/requests.lua; only notify.lua needs this key

-- Writes how many notifications no waiter has yet: never more than there are waiters.
function settle_holders(is_waited_for)
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

