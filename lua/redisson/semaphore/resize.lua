-- Change how many permits there are in all, and tell those who wait if some are free.
--
-- KEYS   see semaphore.lua
-- ARGV   ..., the new number
-- Reply  1 changed
--
-- Made smaller than what is held, it takes nothing away: fewer than none are free, until enough came back.
--
-- Of a plain semaphore nobody knows how many there are in all: it is changed by the difference to what
-- one of us has set it to in the last day, and otherwise to the number that the handle was made with.
-- So it may be run again, and by several who all want the same.

local wanted = tonumber(ARGV[7])

touch()
reap()
if not available then
  establish(wanted)
else
  give_back(wanted - (total() or capacity))
end
if not expirable then remember(wanted) end
tell()
return { 1 }
