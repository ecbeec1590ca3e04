-- Take away every permit that a lease is known of, Java's named ones among them, and tell those who wait.
--
-- KEYS   see semaphore.lua
-- ARGV   see semaphore.lua
-- Reply  how many permits that were

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
