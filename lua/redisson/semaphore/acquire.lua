-- Take permits, if there are so many.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., owner field, how many, lease in ms, manner (not used: here is no queue), the owner field
--        beneath which it is asked, its place, and a secret (none of them used: here is no queue)
-- Reply  1, grant        taken; the grant is the new value of the counter
--        0, TTL in ms    there are not so many, and no lease ends before; a day if no end is known
--        an error of PERMITS: there are not so many in all
--
-- How many there are in all is what Redisson's keys say, whatever the handle was made with: it counts only
-- if the semaphore is not there. Of a plain semaphore nobody knows more than what one of us has set, what is free,
-- and what we have leased; if that is not known, the handle's number is taken for it.
--
-- Run again for the same owner field, it finds its own lease, and takes nothing more.

local field, part, lease_ms = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

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

-- More than there are could be waited for without an end.
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
