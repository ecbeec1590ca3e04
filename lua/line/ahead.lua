-- Who stands right ahead of a caller that lines up for a fair lock.

-- The number in the owner field of that caller, for the reply: see acquire_args.lua.
local ahead

-- `last` was the last in line when a caller of this client lined up. No newcomer comes between the two, since each of them
-- goes to the end. Only a caller that had a place there before may get it back.
local function note_ahead(last, client)
  if not last then return end
  local its_client, number = last:match('^(.*):(%d+)$')
  if its_client == client then ahead = tonumber(number) end
end

