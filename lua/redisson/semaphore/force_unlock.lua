-- Take away every permit that has a lease, and notify the waiters. Java's expirable permits have leases too.
--
-- KEYS   see semaphore.lua
-- ARGV   see semaphore.lua
-- Reply  how many permits it took away

touch()
reap()
local taken = leased()
redis.call('del', leases)
if not expirable then
  local resized_to = total()
  redis.call('del', notes)
  if resized_to then remember(resized_to) end
end
give_back(taken)
tell()
return { taken }
