-- Give each lock back, whatever its hold count, and tell those who wait for it.
--
-- KEYS   the locks, then their lines
-- ARGV   message; whom to tell: 'all', or 'line': nobody if there is no line, and otherwise all with
--        the name of its head; then for each lock: owner field, channel
-- Reply  for each lock: 1 given back | 0 not ours (any more) | text: refused, nothing was changed
--
-- HDEL is allowed when memory is full, and drops the key with its last field. A publish that the
-- server's ACL forbids must not turn a release that happened into an error.

local locks = #KEYS / 2
local message, whom = ARGV[1], ARGV[2]

-- Mostly nobody waits for any of them: then one look is enough.
local nobody_waits = whom == 'line' and redis.pcall('exists', unpack(KEYS, locks + 1)) == 0

local function tell(line, channel)
  if whom == 'all' then return redis.pcall('publish', channel, message) end
  local head = redis.pcall('zrange', line, 0, 0)[1]
  if head then redis.pcall('publish', channel, message .. ' ' .. head) end
end

local reply = {}
for i = 1, locks do
  local gone = redis.pcall('hdel', KEYS[i], ARGV[2 * i + 1])
  if gone == 1 and not nobody_waits then tell(KEYS[locks + i], ARGV[2 * i + 2]) end
  reply[i] = type(gone) == 'table' and gone.err or gone
end
return reply
