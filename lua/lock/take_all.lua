-- Take all of the locks if there is no obstacle to any of them. Otherwise take none. The end of line/acquire_all.lua and of
-- redisson/lock/all_or_none.lua.
--
-- KEYS, ARGV, Reply   see those two. They say how many `locks` there are, what is asked(), which obstacle() there is, and what was found.

local function undo(last)
  for i = 1, last do
    local lock, field = asked(i)
    if not found[i] then redis.pcall('hdel', lock, field) end
  end
end

for i = 1, locks do
  local fine, code, value = pcall(obstacle, i)
  if not fine then return { REFUSED, i, type(code) == 'table' and code.err or tostring(code) } end
  if code then return { code, i, value } end
end
local first, err = draw(locks)
if not first then return { REFUSED, 0, err } end
for i = 1, locks do
  local lock, field, lease = asked(i)
  local code, value = put(lock, field, math.max(lease, found[i] or 0), first + i - 1)
  if code ~= GRANTED then
    undo(i - 1)
    return { code, i, value }
  end
end
return { GRANTED, 0, first }
