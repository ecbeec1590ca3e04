-- Take the lock away from all its holders, tell them, and let in the front of the line.
--
-- KEYS   see head.lua
-- ARGV   see head.lua
-- Reply  how many holders there were

check_writable()
local gone, named = put_all_out()
-- The message does not come in our client's name: if our own client is a holder, it has to look as all others do. If there are
-- too many holders to name them all, the message names none, and every holder looks.
if gone > 0 then
  local words = gone == #named and ' ' .. table.concat(named, ' ') or ''
  redis.pcall('publish', channel, 'force_unlock' .. words)
end
pcall(admit)
settle()
return { gone }
