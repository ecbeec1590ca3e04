-- Report how much is held, and for how long.
--
-- KEYS   see semaphore.lua
-- ARGV   see semaphore.lua
-- Reply  the longest lease left in ms (-1: no end is known; -2: there is no holder) | how many are held | how many there are
--
-- For a plain semaphore, only the difference of the last two numbers is right: how many are free.

touch()
reap()
tell()
local all = total() or capacity
local used = (available and all - available or leased()) - expired()
local last = redis.call('zrange', leases, -1, -1, 'WITHSCORES')[2]
local left, ttl = last and last - now or 0, -2
if left > 0 and left <= YEAR then
  ttl = math.max(1, left)
elseif used > 0 then
  ttl = -1
end
return { ttl, used, all }
