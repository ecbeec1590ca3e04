-- The uncontended path of the other kinds, second half: draw_uncontended.lua has drawn the number of the grant; take the part.
if number then
  local time = redis.call('time')
  local over = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
  local used, added = string.format('%.0f', in_use + part - 4503599627370496)
  if part == 1 then
    added = redis.pcall('zadd', KEYS[2], over, ARGV[4], used, says)
  else
    added = redis.pcall('zadd', KEYS[2], over, ARGV[4], used, says, -part, '=' .. ARGV[4])
  end
  if type(added) == 'number' and (ttl >= lease or redis.pcall('pexpire', KEYS[2], ARGV[5]) == 1) then
    return number
  end
  -- The expiry was refused. No key ever remains without a TTL, and acquire.lua undoes only what it has done itself.
  if ttl == -2 then
    redis.pcall('del', KEYS[2])
  elseif type(added) == 'number' then
    redis.pcall('zrem', KEYS[2], ARGV[4], '=' .. ARGV[4])
    redis.pcall('zadd', KEYS[2], string.format('%.0f', in_use - 4503599627370496), says)
  end
end

