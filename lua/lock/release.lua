-- Give each lock back, whatever its hold count, and wake those who wait for it.
--
-- KEYS   the locks
-- ARGV   for each lock: owner field, channel, message
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- HDEL is allowed when memory is full, and drops the key with its last field. A publish that the
-- server's ACL forbids must not turn a release that happened into an error.

local reply = {}
for i = 1, #KEYS do
  local gone = redis.pcall('hdel', KEYS[i], ARGV[3 * i - 2])
  if gone == 1 then redis.pcall('publish', ARGV[3 * i - 1], ARGV[3 * i]) end
  reply[i] = type(gone) == 'table' and gone.err or gone
end
return reply
