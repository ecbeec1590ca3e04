-- Give each lock back, whatever its hold count, and tell those who wait for it.
--
-- KEYS   for each lock: the lock, its line
-- ARGV   for each lock: owner field, channel, message, whom to tell: 'all', or 'line': nobody if
--        there is no line, and otherwise everybody whose turn it is
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- HDEL is allowed when memory is full, and drops the key with its last field. A publish that the
-- server's ACL forbids must not turn a release that happened into an error.

local function tell(line, channel, message, whom)
  if whom == 'all' then return redis.pcall('publish', channel, message) end
  local head = redis.pcall('zrange', line, 0, 0)[1]
  if head then redis.pcall('publish', channel, message .. ' ' .. head) end
end

local reply = {}
for i = 1, #KEYS / 2 do
  local a = 4 * i - 4
  local gone = redis.pcall('hdel', KEYS[2 * i - 1], ARGV[a + 1])
  if gone == 1 then tell(KEYS[2 * i], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]) end
  reply[i] = type(gone) == 'table' and gone.err or gone
end
return reply
