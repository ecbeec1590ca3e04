-- Take it away from all who hold it, tell them, and let in whoever may now.
--
-- KEYS   see queue.lua
-- ARGV   see queue.lua
-- Reply  how many held it

local gone = redis.call('zrange', holders, 0, -1)
for _, field in ipairs(gone) do
  leave(holders, field)
end
-- Not in our client's name: if it is the holder, it has to look as everybody else.
if #gone > 0 then redis.pcall('publish', channel, 'force_unlock ' .. table.concat(gone, ' ')) end
redis.call('zrem', holders, 'parklock:nobody') -- changes nothing; a replica refuses it
admit()
settle()
return { #gone }
