-- Take permits, if enough are free.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., owner field, how many, lease in ms, then four that are not used, since there is no line here: manner, the owner
--        field of an outer hold, place, secret
-- Reply  1, grant        taken; the grant is the new value of the counter
--        0, TTL in ms    too few are free, and no lease ends sooner than this; a day if no end is known
--        an error of PERMITS: the semaphore has too few in total, or one call may not take so many
--
-- Redisson's keys say how many permits there are in total. The number of the handle applies only if the semaphore does
-- not exist. For a plain semaphore, Redis knows only the number that a client of ours has set, the free permits, and
-- our own leases. If these do not determine the total, the script uses the number of the handle.
--
-- A script that runs again for the same owner field finds its own lease, and takes nothing more.

-- Each permit of an expirable semaphore is a member of a sorted set. A script that writes more of them than this would stop the
-- server for all others.
local MOST_TOGETHER = 10000

local field, part, lease_ms = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

if out_of_range(lease_ms) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if expirable and part > MOST_TOGETHER then
  return redis.error_reply(string.format('PERMITS %.0f of %.0f', part, MOST_TOGETHER))
end

local function shortest_lease()
  local first = redis.call('zrange', leases, 0, 0, 'WITHSCORES')[2]
  return first and math.min(LONGEST_LEASE, math.max(1, first - now)) or LONGEST_LEASE
end

local function take()
  local mine = redis.call('zscore', leases, field)
  local number, err = draw(1)
  if not number then return redis.error_reply(err) end
  if not available then establish(capacity) end
  if mine then
    lease(field, held_by(field), math.max(mine, now + lease_ms))
    return { GRANTED, number }
  end
  available = redis.call('decrby', free, string.format('%.0f', part))
  local leased_out, problem = pcall(lease, field, part, now + lease_ms)
  if not leased_out then
    -- Without its lease, nobody would ever give this permit back.
    pcall(forget, field)
    give_back(part)
    return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
  end
  return { GRANTED, number }
end

-- A caller that wants more permits than there are would wait forever.
local function there_are_too_few()
  local all = total() or capacity
  if part > all and available then all = math.max(all, available + leased()) end
  return part > all, all
end

local function attempt()
  reap()
  local enough = (available or capacity - leased()) >= part
  if enough or redis.call('zscore', leases, field) then return take() end
  local too_few, all = there_are_too_few()
  if too_few then
    touch()
    return redis.error_reply(string.format('PERMITS %.0f of %.0f', part, all))
  end
  if not available then establish(capacity) end
  touch()
  return { HELD, shortest_lease() }
end

local reply = attempt()
tell()
return reply
