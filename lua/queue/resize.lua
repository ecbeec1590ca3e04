-- Change the capacity for as long as anybody holds or waits, and let in whoever may now.
--
-- KEYS   see queue.lua
-- ARGV   ..., the new capacity
-- Reply  1 changed | 0 nobody holds or waits, so that there is nothing to change
--
-- Made smaller, it takes nothing away: nobody enters before enough have left.

redis.call('zrem', holders, 'parklock:nobody') -- changes nothing; a replica refuses it
admit()
settle()
if redis.call('exists', notes) == 0 then return { 0 } end
capacity = tonumber(ARGV[7])
redis.call('hset', notes, 'capacity', capacity)
admit()
settle()
return { 1 }
