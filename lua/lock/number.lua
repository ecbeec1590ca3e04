-- The number of a grant on the straight path, without a function made for it: as draw() in grant.lua does it for one grant, if
-- the counter is as it should be. A counter that is lost or not ours is put back for draw(). There is none unless `is_free`.
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
      redis.call('pexpire', KEYS[1], 0)
    end
  end
end

