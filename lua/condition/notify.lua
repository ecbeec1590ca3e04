-- Notify the waiter at the front of the line, or all waiters.
--
-- KEYS   see open_name.lua; then the requests that were carried out
-- ARGV   see open_name.lua and lua/latch/requests.lua; then 'one' or 'all'
-- Reply  how many waiters this request notifies; also 0 if it was carried out before
--
-- With 'one', the front gets its notification in this call if its client is alive. A silent front is told to show a
-- sign of life. The notification waits for the sign, and goes to the next waiter if the sign does not come.
--
-- With 'all', the waiters are notified on the channel of all clients. They leave the line here, and each of them finds
-- that out when it asks (acquire.lua). So the call costs the same, however many wait.

local requests = KEYS[5]
redis.call('zcard', requests) -- keys of another type are refused here, before the first write
local notified = redis.call('zcard', line)

check_writable()
if is_done(requests) then return { 0 } end
carry_out(requests)
let_go()
if ARGV[9] == 'all' then
  used = capacity
  -- An expiry of zero deletes the key: see settle().
  redis.call('pexpire', line, '0')
  if notified > 0 then redis.pcall('publish', channel, 'notify_all') end
else
  -- A condition remembers nothing: a notification counts only if there is a waiter that has none yet.
  notified = math.min(1, math.max(0, notified - (capacity - used)))
  used = used - notified
  admit()
end
settle()
return { notified }
