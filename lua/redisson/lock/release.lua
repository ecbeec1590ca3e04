-- Give each lock back, whatever its hold count, and tell its waiters.
--
-- KEYS   the locks
-- ARGV   message, then for each lock: owner field, channel
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- Redis allows HDEL when its memory is full, and deletes the key with its last field. A publish that the server's ACL forbids
-- must not turn a release that happened into an error.
--
-- If our hold is gone, the lock may have gone without a release: somebody deleted it, or a replica that had never heard of it
-- took over. Then nobody has told the waiters, and they would sleep until the old TTL is over. So the script also tells them
-- when there is no lock.

local reply = {}
for i = 1, #KEYS do
  local gone = redis.pcall('hdel', KEYS[i], ARGV[2 * i])
  if type(gone) == 'table' then
    reply[i] = gone.err
  else
    reply[i] = gone
    if gone == 1 or redis.pcall('exists', KEYS[i]) == 0 then
      redis.pcall('publish', ARGV[2 * i + 1], ARGV[1])
    end
  end
end
return reply
