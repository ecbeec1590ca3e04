-- The straight path of a plain lock, second half: draw_straight.lua has drawn the number of the grant; take the lock.
if number and redis.pcall('hset', KEYS[2], field, 1) == 1 and redis.pcall('pexpire', KEYS[2], lease) == 1 then
  return number
end

