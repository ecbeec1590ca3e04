-- The straight path of a plain lock goes on, with the number of its grant: it is taken.
if number and redis.pcall('hset', KEYS[2], field, 1) == 1 and redis.pcall('pexpire', KEYS[2], lease) == 1 then
  return number
end

