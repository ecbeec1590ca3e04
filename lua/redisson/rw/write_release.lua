-- Stop writing, and tell all who wait. If its owner goes on reading, so may others.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field
-- Reply  1 it wrote | 0 it did not (any more)
--
-- HDEL is allowed when memory is full, and after it everything is. Redisson tells nobody that others may
-- read now.

if redis.call('hdel', lock, ARGV[7] .. ':write') == 0 then return { 0 } end
if settle(ALL) > 0 then
  redis.pcall('hset', lock, 'mode', 'read')
  tell(ALL)
end
return { 1 }
