-- Redisson's fenced lock has its own counter, which increases by one with each grant.
--
-- KEYS   the token counter first
-- Reply  see acquire.lua

local function draw(grants)
  local last = redis.pcall('incrby', KEYS[1], grants)
  if type(last) == 'table' then return nil, last.err end
  return last - grants + 1
end

