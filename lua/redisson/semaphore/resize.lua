-- Change the total number of permits, and notify the waiters if some are free.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., the new number; then perhaps 'unset': only if there is none, as Redisson's trySetPermits
-- Reply  1 changed | 0 there is one
--
-- If more permits are held than the new total, this takes none away: the number of free permits is negative until
-- enough are released.
--
-- For a plain semaphore, Redis does not know the total number of permits. So the script adds the new number minus the
-- old one to the permits that are free. The old number is the one that a client of ours has set within the last day, or
-- otherwise that of the handle. So the script may run again, also for several clients that set the same number.

local wanted = tonumber(ARGV[7])

touch()
reap()
local is_set = available and ARGV[8] == 'unset'
if not available then
  establish(wanted)
elseif not is_set then
  give_back(wanted - (total() or capacity))
end
if not expirable and not is_set then remember(wanted) end
tell()
return { is_set and 0 or 1 }
