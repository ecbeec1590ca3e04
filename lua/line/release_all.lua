-- What release_one.lua left: several locks, or one that is waited for.

from, waiter_ttl = ARGV[2], tonumber(ARGV[3])
if not waiter_ttl or waiter_ttl < 1 then return redis.error_reply('ERR waiter_ttl out of range') end

local is_waited_for = #KEYS == 4 -- release_one.lua has seen it

local function release(i, field, its_channel)
  lock, line, notes, channel = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1], its_channel
  if not is_waited_for and redis.call('exists', line) == 0 then
    local gone = redis.call('hdel', lock, field)
    if gone == 0 and redis.call('exists', lock) == 0 then redis.pcall('publish', channel, from) end
    return gone
  end
  local gone = redis.call('hdel', lock, field)
  open()
  if gone == 0 and stands(field) then leave(read({ field })[1]) end
  -- A lock that is not ours any more may have gone without a release. If it is free, the next one has it now.
  pcall(admit)
  settle()
  return gone
end

-- Whatever goes wrong with one lock is said of that one alone.
local reply = {}
for i = 1, (#KEYS - 1) / 3 do
  local fine, gone = pcall(release, i, ARGV[2 * i + 2], ARGV[2 * i + 3])
  if not fine then gone = type(gone) == 'table' and gone.err or tostring(gone) end
  reply[i] = gone
end
return reply
