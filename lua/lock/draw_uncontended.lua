-- The number of a grant on the uncontended path, if `is_free`. It does the same as draw() of draw.lua for one grant,
-- without creating a function. It leaves a counter that is lost or not ours to draw().
local number
if is_free then
  local floor = tonumber(ARGV[1])
  local next = floor and floor >= 0 and floor < 9007199254740992 and redis.pcall('incrby', KEYS[1], '1')
  if type(next) == 'number' and next > 2 and next < 9007199254740992 and next <= floor + 1099511627776 then
    number = next
    if next < floor then
      local time = redis.call('time')
      number = math.max(floor, time[1] * 1000000 + time[2])
      redis.call('set', KEYS[1], string.format('%.0f', number))
    end
  end
end
