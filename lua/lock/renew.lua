-- Renew each lock that is still ours to at least this long from now. A TTL is never shortened.
--
-- KEYS   the locks
-- ARGV   for each lock: owner field, TTL wanted in ms
-- Reply  for each lock: 1 renewed | 0 not ours any more | text: refused, nothing was changed

local LONGEST_LEASE = 86400000 -- 24 h

local function renew(lock, field, wanted)
  local ms = tonumber(wanted)
  if not ms or ms < 1 or ms > LONGEST_LEASE then return 'ERR lease out of range' end
  local ours = redis.pcall('hexists', lock, field)
  if type(ours) == 'table' then return ours.err end
  local write
  if ours == 1 then
    write = redis.pcall('pexpire', lock, math.max(ms, redis.call('pttl', lock)))
  else
    -- This changes nothing, and a replica refuses it: so "gone" always comes from a primary.
    write = redis.pcall('hdel', lock, 'parklock:nobody')
  end
  return type(write) == 'table' and write.err or ours
end

local reply = {}
for i = 1, #KEYS do
  reply[i] = renew(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
return reply
