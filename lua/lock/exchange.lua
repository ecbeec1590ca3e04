-- Offer a lock that we hold: others who wait get it; if nobody does, it becomes our next tenure.
--
-- KEYS   the token counter, the lock, its line
-- ARGV   the floor of the counter, the TTL of a line in ms, our client (without a line, others may
--        always wait), the old owner field, the new one, its lease in ms, manner (see take.lua),
--        channel, message
-- Reply  as acquire.lua, for one lock. Whatever the answer but a refusal, the old field is gone.
--
-- If it was gone before, nobody has told those who wait: see release.lua.

local lock, line, old, new, lease, manner = KEYS[2], KEYS[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- The first of the others who wait; without a line, anybody may.
local function successor()
  if client == '' then return '' end
  local head = redis.call('zrange', line, 0, 0)[1]
  if head == client then
    redis.call('zrem', line, client)
    head = redis.call('zrange', line, 0, 0)[1]
  end
  return head
end

local function pass_on(head)
  redis.call('hdel', lock, old)
  redis.pcall('publish', ARGV[8], head == '' and ARGV[9] or ARGV[9] .. ' ' .. head)
  if client ~= '' and manner == 'wait' then line_up(line) end
  return RESERVED, 0
end

local function exchange()
  if out_of_range(lease) then return REFUSED, 'ERR lease out of range' end
  local err = refusal(lock)
  if err then return REFUSED, err end
  if redis.call('hexists', lock, old) == 0 then
    if redis.call('exists', lock, line) ~= 2 then redis.pcall('publish', ARGV[8], ARGV[9]) end
    return attempt(lock, line, new, lease, manner)
  end
  local head = successor()
  if head then return pass_on(head) end
  local code, value = grant(lock, new, lease)
  if code == GRANTED then redis.call('hdel', lock, old) end
  return code, value
end

return { guarded(exchange) }
