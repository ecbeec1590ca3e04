-- Opens a name: reads what is known of it, and settles its kind. Most scripts about one name run this before their last
-- part, which says "see open_name.lua". Plain locks are released without it.
--
-- KEYS   the token counter, the holders, the line, the notes
-- ARGV   the floor of the counter, the kind, its capacity, channel, the client that publishes, its waiter_ttl (how long after a
--        sign of life a client counts as alive) in ms, then what the script asks for

lock, line, notes, channel = KEYS[2], KEYS[3], KEYS[4], ARGV[4]
from, waiter_ttl = ARGV[5], tonumber(ARGV[6])

if out_of_range(waiter_ttl) then return redis.error_reply('ERR waiter_ttl out of range') end
if not capacity or capacity < 1 then return redis.error_reply('ERR capacity out of range') end

local function nobody_is_left()
  return redis.call('exists', lock, line) == 0
end

-- The holders and waiters of a name determine its kind. A dead holder counts until its lease is over, a dead waiter until
-- its time to answer is over.
local known, known_capacity = open()
if known and known ~= kind then
  local ours, our_capacity = kind, capacity
  -- The scripts of one kind know the holders of another, except for those of plain locks and of conditions.
  local is_alien = { lock = true, condition = true }
  -- A plain lock is taken without a look at the notes. So they may still be those of another kind that nobody uses any more.
  local are_left_over = ours == 'lock' and redis.call('exists', line) == 0
  kind, capacity = known, known_capacity
  if are_left_over then
    settle()
  elseif not is_alien[ours] and not is_alien[known] then
    check_writable(false)
    admit()
    settle()
  end
  if not are_left_over and not nobody_is_left() then
    return redis.error_reply(string.format('CONFLICT %s %.0f', known, known_capacity))
  end
  kind, capacity = ours, our_capacity
  open()
  known, known_capacity = nil, nil
  pass_over_notes()
end
capacity = known_capacity or capacity

