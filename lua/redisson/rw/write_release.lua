-- Stop writing, and notify all waiters. If the owner continues to read, other readers may enter.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field
-- Reply  1 it wrote | 0 it did not (any more)
--
-- Redis allows HDEL when its memory is full, and then every write of this script. (Redisson's own release does not
-- notify the waiting readers.)

if redis.call('hdel', lock, ARGV[7] .. ':write') == 0 then
  tell_if_gone()
  return { 0 }
end
if settle(ALL) > 0 then
  redis.pcall('hset', lock, 'mode', 'read')
  tell(ALL)
end
return { 1 }
