-- A plain lock that is free and that nobody waits for: straight on, before any function is made. Whatever is out of the
-- ordinary goes on in acquire.lua. See there for KEYS and ARGV.

if ARGV[14] == '' and redis.pcall('exists', KEYS[2], KEYS[3]) == 0 then
  local floor, lease = tonumber(ARGV[1]), tonumber(ARGV[9])
  if floor and floor >= 0 and floor < 9007199254740992 and lease and lease >= 1 and lease <= 86400000 then
    -- As draw() does it. A counter that is lost or not ours is put back for it.
    local before = redis.pcall('set', KEYS[1], ARGV[1], 'GET')
    local last = tonumber(before)
    if last and last >= 0 and last % 1 == 0 and last < floor + 1099511627776 and last < 9007199254740991 then
      local number = floor
      if last >= floor then
        number = last + 1
        redis.call('set', KEYS[1], string.format('%.0f', number))
      end
      if redis.pcall('hset', KEYS[2], ARGV[7], 1) == 1 and redis.pcall('pexpire', KEYS[2], ARGV[9]) == 1 then
        return number
      end
    elseif type(before) == 'string' then
      redis.call('set', KEYS[1], before)
    elseif not before then
      redis.call('del', KEYS[1])
    end
  end
end

