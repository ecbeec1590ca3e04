-- Set the capacity for all clients, whatever their handles were made with, and let in waiters from the front of the
-- line.
--
-- KEYS   see open_name.lua
-- ARGV   ..., the new capacity; then perhaps 'unset': only if none is set, and nobody holds or waits
-- Reply  1 set | 0 one is set, or applies to those who hold or wait
--
-- The capacity stays until it is set again, or until nobody has used the name for thirty days. A smaller capacity takes
-- nothing away: nobody enters before enough holders have left.

local wanted = tonumber(ARGV[7])
if not wanted or wanted < 1 then return redis.error_reply('ERR capacity out of range') end

check_writable()
move_on()
if ARGV[8] == 'unset' and (is_set or not nobody_is_left()) then return { 0 } end
capacity, is_set = wanted, true
local fine, problem = pcall(remember_capacity)
if not fine then
  -- A key of ours must never stay without a TTL.
  if redis.call('pttl', notes) == -1 then redis.call('del', notes) end
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
move_on()
return { 1 }
