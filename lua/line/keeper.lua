-- A client that keeps idle locks (src/engine/keep.rs). Its id says so: the 16th character is 'f', which no other client's is.

local KEEPS = 102 -- 'f'
local KEPT = 3

-- Tells the holder of a plain lock that another client wants the lock, if the holder's client keeps idle locks. Returns
-- whether it does. A waiter repeats this with its signs of life, since a message can be lost. A user that may not read the
-- fields of the lock tells nobody: then the keeper gives the lock up when its time is over.
local function tell_keeper(lock, channel, from)
  local field = redis.pcall('hkeys', lock)[1]
  local client = field and field:match('^(.*):%d+$')
  if client and client:byte(16) == KEEPS then
    redis.pcall('publish', channel .. ':' .. client, from .. ' ' .. field .. '~')
    return true
  end
end

