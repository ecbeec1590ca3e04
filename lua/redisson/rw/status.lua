-- Report how many hold the lock, and for how long.
--
-- KEYS   see rw.lua
-- ARGV   see rw.lua
-- Reply  its TTL in ms (-1: it has none, -2: nobody reads or writes) | how many read, or the capacity if somebody writes | the
--        capacity
--        an error of CONFLICT: the name is that of a plain lock
--
-- Dead readers do not count.

if is_strange() then return conflict() end
confirm()
if mode == 'read' and longest_life(1) <= 0 then free(ONE) end
local ttl, fields = redis.call('pttl', lock), redis.call('hlen', lock)
if fields <= 1 then return { -2, 0, capacity } end
return { ttl, mode == 'write' and capacity or fields - 1, capacity }
