-- Take the lock away from all its holders, notify them, and let in waiters from the front of the line.
--
-- KEYS   see open_name.lua
-- ARGV   see open_name.lua
-- Reply  how many holders there were

check_writable()
local gone, named = end_all_holds()
-- The message does not name our client as its sender: if our own client is a holder, it has to check like all others.
-- If there are too many holders to name, the message names none: a holder that is alone in its client checks, the others learn it from
-- their next renewals.
if gone > 0 then
  local words = gone == #named and ' ' .. table.concat(named, ' ') or ''
  redis.pcall('publish', channel, 'force_unlock' .. words)
end
pcall(admit)
settle()
return { gone }
