-- Take permits, if there are so many.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., owner field, how many, lease in ms, manner (not used: here is no queue), the owner field
--        beneath which it is asked (not used), 1 if it was answered before, otherwise 0, a secret (not used)
-- Reply  1, grant        taken; the grant is the new value of the counter
--        0, TTL in ms    there are not so many, and no lease ends before; a day if no end is known
--        an error of CONFLICT: 'expirable' only: there is another number of permits in all, or less than
--        what is asked for
--
-- Of a plain semaphore nobody knows how many permits there are in all, so that nobody can disagree.
-- Whoever waits already goes on waiting if that number changes.
--
-- Run again for the same owner field, it finds its own lease, and takes nothing more.

local field, part, lease_ms, answered = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[12])

if out_of_range(lease_ms) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end

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
    -- What nobody would ever give back is not taken.
    pcall(forget, field)
    give_back(part)
    return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
  end
  return { GRANTED, number }
end

local function attempt()
  reap()
  local there = total()
  if expirable and there and (answered == 0 and there ~= capacity or part > there) then
    touch()
    return redis.error_reply('CONFLICT expirable semaphore with ' .. there .. ' permits')
  end
  local enough = (available or capacity - leased()) >= part
  if enough or redis.call('zscore', leases, field) then return take() end
  if not available then establish(capacity) end
  touch()
  return { HELD, shortest_lease() }
end

local reply = attempt()
tell()
return reply
