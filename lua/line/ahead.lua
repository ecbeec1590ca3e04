-- Who stands right ahead of a caller that lines up for a fair lock.

-- The number in the owner field of that caller, for the reply: see acquire_args.lua.
local ahead

-- `last` was the last in line when a caller of this client lined up. Nobody can come between the two, since each newcomer
-- goes to the end.
local function note_ahead(last, client)
  if ARGV[2] ~= 'fair' or not last then return end
  local its_client, number = last:match('^(.*):(%d+)$')
  if its_client == client then ahead = tonumber(number) end
end

