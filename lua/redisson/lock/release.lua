-- Release each lock, whatever its hold count, and notify its waiters.
--
-- KEYS   the locks
-- ARGV   message, then for each lock: owner field, channel
-- Reply  for each lock: 1 released | 0 not ours (any more) | text: refused, nothing was changed
--
-- Redis allows HDEL when its memory is full, and deletes the key with its last field. If the server's ACL forbids the
-- publish, that must not turn a successful release into an error.
--
-- If our hold is gone, the lock may have gone without a release: somebody deleted it, or a replica without it was
-- promoted. In that case nobody has notified the waiters, and they would sleep until the old TTL is over. So the script
-- also notifies them when there is no lock.

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
