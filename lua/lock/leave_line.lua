-- Leave the line of each lock: nobody of our client waits for it any more.
--
-- KEYS   the lines
-- ARGV   our client
-- Reply  for each line: 1 left | 0 we were not in it | text: refused, nothing was changed

local reply = {}
for i = 1, #KEYS do
  local gone = redis.pcall('zrem', KEYS[i], ARGV[1])
  reply[i] = type(gone) == 'table' and gone.err or gone
end
return reply
