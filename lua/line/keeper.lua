-- A client that keeps idle locks (src/engine/keep.rs) has an 'f' as the 16th character of its id. No other client has.

local KEEPS = 102 -- 'f'
local KEPT = 3

-- The word that tells a keeper that a caller of another client wants the lock. WAITS: the caller waits in line. TRIES:
-- it does not wait, and may ask once more soon.
local WAITS, TRIES = '~', '~!'

-- Tells the holder of a plain lock that another client wants the lock, if the holder's client keeps idle locks. Returns
-- whether it does. A waiter repeats this with its signs of life, since a message can be lost. If the user may not read the
-- fields of the lock, nobody is told. Then the keeper gives the lock back when it was idle for `keep`, or after 1,024 turns.
local function tell_keeper(lock, channel, from, how)
  -- Another program's hash may have any number of fields.
  local field = redis.pcall('hlen', lock) == 1 and redis.pcall('hkeys', lock)[1]
  local client = field and field:match('^(.*):%d+$')
  if client and client:byte(16) == KEEPS then
    redis.pcall('publish', channel .. ':' .. client, from .. ' ' .. field .. how)
    return true
  end
end

