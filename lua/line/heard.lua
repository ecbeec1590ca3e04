-- What this and sessions.lua do: in a table, since a script may have no more than 200 local variables.
local sessions = {}

-- A client with a session (see sessions.lua) asks for this owner field, or says that it has it. What the client hears from now on may
-- prove this hold. So a note that nobody listens is over, and whoever looks begins anew.
function sessions.erase_note(notes, field)
  if not field:find('+', 1, true) then return end
  local noted = redis.pcall('hmget', notes, 'silent')
  if noted.err then
    -- Another program has written the key. No head can have noted anything there.
    if noted.err:find('WRONGTYPE', 1, true) then return end
    error(noted.err, 0)
  end
  if noted[1] and noted[1]:find(field .. ' ', 1, true) then redis.call('hdel', notes, 'silent') end
end

