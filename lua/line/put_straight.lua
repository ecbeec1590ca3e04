-- The straight path of a plain lock, second half: draw_straight.lua has drawn the number of the grant; take the lock.
-- Arguments of commands are texts wherever they can be: to turn a number into a text costs the server 0.2 us.
if number and redis.pcall('hset', KEYS[2], field, '1') == 1 and redis.pcall('pexpire', KEYS[2], lease_text) == 1 then
  return number
end

