-- Set the capacity, for all and whatever they say it is, and let in whoever may now.
--
-- KEYS   see queue.lua
-- ARGV   ..., the new capacity
-- Reply  1 set
--
-- It stays until it is set again, or was not used for thirty days. Made smaller, it takes nothing away: nobody
-- enters before enough have left.

redis.call('zrem', holders, 'parklock:nobody') -- changes nothing; a replica refuses it
admit()
settle()
capacity, is_set = tonumber(ARGV[7]), true
local fine, problem = pcall(remember_capacity)
if not fine then
  -- No key of ours is ever left without a TTL.
  if redis.call('pttl', notes) == -1 then redis.call('del', notes) end
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
admit()
settle()
return { 1 }
