-- Give each lock back, whatever its hold count, and tell those who wait for it.
--
-- KEYS   the locks
-- ARGV   message, then for each lock: owner field, channel
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- HDEL is allowed when memory is full, and drops the key with its last field. A publish that the
-- server's ACL forbids must not turn a release that happened into an error.
--
-- A lock that is not ours any more may have gone without a release: it was deleted, or a replica that had never heard
-- of it took over. Nobody has told those who wait, and they would sleep until its old TTL is over. So they are told
-- also when it is not there.

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
