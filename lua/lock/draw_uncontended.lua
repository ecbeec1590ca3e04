-- The number of a grant on the uncontended path, if `is_free`. It does the same as draw() of draw.lua for one grant,
-- without creating a function. If the counter is lost or not ours, it restores the counter and leaves the number to
-- draw().
local number
if is_free then
  local floor = tonumber(ARGV[1])
  if floor and floor >= 0 and floor < 9007199254740992 then
    local before = redis.pcall('set', KEYS[1], ARGV[1], 'GET')
    local last = tonumber(before)
    if last and last >= 0 and last % 1 == 0 and last < floor + 1099511627776 and last < 9007199254740991 then
      number = floor
      if last >= floor then
        number = last + 1
        redis.call('set', KEYS[1], string.format('%.0f', number))
      end
    elseif type(before) == 'string' then
      redis.call('set', KEYS[1], before)
    elseif not before then
      redis.call('pexpire', KEYS[1], '0')
    end
  end
end

