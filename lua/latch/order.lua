-- Carry out an order once: set the latch, unless it is closed; count it down by one; or delete it. Notify the waiters of what opens or
-- deletes it.
--
-- KEYS   see latch.lua
-- ARGV   see requests.lua; then the order: 'count_down', 'delete', or 'set' and then the count and its TTL in ms
-- Reply  set: 1 set | 0 the latch is closed: callers may be waiting for it
--        count_down: the remaining count, which does not go below zero; for a request that was carried out before, the count now; an
--        error of UNSET: the latch does not exist (native only)
--        delete: 1 deleted | 0 there was none

-- Check this first: a caller that has passed may have deleted the latch since this request opened it.
local was_done = is_done(requests)

if ARGV[9] == 'set' then
  local wanted, ttl = ARGV[10], tonumber(ARGV[11])
  if out_of_range(ttl) then return redis.error_reply('ERR TTL out of range') end
  -- Only here: after this write, Redis would set a latch although its memory is full.
  if was_done or count and count > 0 then
    touch()
    return { was_done and 1 or 0 }
  end
  -- Redisson has no key for an open latch.
  if GONE_IS_OPEN and tonumber(wanted) == 0 then
    carry_out(requests, 'del', latch)
    tell('open')
  else
    carry_out(requests, 'set', latch, wanted, 'PX', ttl)
    if GONE_IS_OPEN then tell('set') end
  end
  return { 1 }
end

touch()
if ARGV[9] == 'delete' then
  if was_done then return { 1 } end
  if not count then return { 0 } end
  carry_out(requests, 'del', latch)
  tell('deleted')
  return { 1 }
end

if was_done then return { count or 0 } end
if not count then
  return GONE_IS_OPEN and { 0 } or redis.error_reply('UNSET there is no such latch')
end
if count == 0 then
  carry_out(requests)
  return { 0 }
end
local left = count - 1
if left == 0 and GONE_IS_OPEN then
  carry_out(requests, 'del', latch)
else
  carry_out(requests, 'decr', latch)
end
if left == 0 then tell('open') end
return { left }
