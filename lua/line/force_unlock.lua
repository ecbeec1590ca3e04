-- Take it away from all who hold it, tell them, and let in whoever may now.
--
-- KEYS   see head.lua
-- ARGV   see head.lua
-- Reply  how many held it

check_writable()
local gone, named = put_all_out()
-- Not in our client's name: if it is the holder, it has to look as everybody else. A message that does not name all of
-- them names nobody, and everybody looks.
if gone > 0 then
  local words = gone == #named and ' ' .. table.concat(named, ' ') or ''
  redis.pcall('publish', channel, 'force_unlock' .. words)
end
pcall(admit)
settle()
return { gone }
