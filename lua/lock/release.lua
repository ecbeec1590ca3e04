-- Give each lock back, whatever its hold count, and tell those who wait for it.
--
-- KEYS   the locks, then their lines (without lines: the locks again)
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

local function tell(line, channel, everybody)
  local head = whom == 'line' and redis.pcall('zrange', line, 0, 0)[1]
  if head then
    redis.pcall('publish', channel, message .. ' ' .. head)
  elseif everybody then
    redis.pcall('publish', channel, message)
  end
end

-- A lock that is not ours any more went without a release: it was deleted, or a replica that had never
-- heard of it took over. Nobody has told those who wait, and they would sleep until its old TTL is over.
-- So they are told now, unless they stand in line behind another holder: that one will tell them.
local function tell_of_loss(lock, line, channel)
  if redis.pcall('exists', lock, line) ~= 2 then tell(line, channel, true) end
end

local reply = {}
for i = 1, locks do
  local gone = redis.pcall('hdel', KEYS[i], ARGV[2 * i + 1])
  local line, channel = KEYS[locks + i], ARGV[2 * i + 2]
  if gone == 1 and not nobody_waits then tell(line, channel, whom == 'all') end
  if gone == 0 then tell_of_loss(KEYS[i], line, channel) end
  reply[i] = type(gone) == 'table' and gone.err or gone
end
return reply
