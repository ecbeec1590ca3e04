-- Take away every permit that has a lease, and notify the waiters. Java's expirable permits have leases too.
--
-- KEYS   see semaphore.lua
-- ARGV   see semaphore.lua
-- Reply  how many permits it took away

touch()
reap()
local all, dead = leased(), expired()
redis.call('del', leases)
if not expirable then forget_owners() end
give_back(all)
tell()
return { all - dead }
