-- Set the capacity, for all and whatever they say it is, and let in whoever may now.
--
-- KEYS   see head.lua
-- ARGV   ..., the new capacity
-- Reply  1 set
--
-- It stays until it is set again, or was not used for thirty days. Made smaller, it takes nothing away: nobody
-- enters before enough have left.

local wanted = tonumber(ARGV[7])
if not wanted or wanted < 1 then return redis.error_reply('ERR capacity out of range') end

check_writable()
admit()
settle()
capacity, is_set = wanted, true
local fine, problem = pcall(remember_capacity)
if not fine then
  -- No key of ours is ever left without a TTL.
  if redis.call('pttl', notes) == -1 then redis.call('del', notes) end
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
admit()
settle()
return { 1 }
