-- Give plain locks back, whatever their hold count, and leave their lines. Whoever is next in line has the lock then, and
-- is told.
--
-- KEYS   the token counter, then for each lock: the lock, its line, its notes
-- ARGV   the floor of the counter, who publishes, for how long after a sign of life a client counts as alive in ms, then
--        for each lock: owner field, channel
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- HDEL is allowed when memory is full, and after it everything is. A publish that the server's ACL forbids must not turn
-- a release that happened into an error.

-- One lock that nobody waits for: straight on, before any function is made.
if #KEYS == 4 and redis.pcall('exists', KEYS[3]) == 0 then
  local gone = redis.pcall('hdel', KEYS[2], ARGV[4])
  if gone == 1 then return { 1 } end
  if type(gone) == 'table' then return { gone.err } end
  -- It went without a release, and perhaps the line with it: it was deleted, or a replica that had never heard of it took
  -- over. Nobody has told those who waited, and they would sleep for long.
  if redis.pcall('exists', KEYS[2]) == 0 then redis.pcall('publish', ARGV[5], ARGV[2]) end
  return { 0 }
end

