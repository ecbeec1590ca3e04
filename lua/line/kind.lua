-- What kind a name is of, by its holders and waiters. A dead holder counts until its lease is over, a dead waiter until its time to
-- answer is over.

local known, known_capacity

local function nobody_is_left()
  return redis.call('exists', lock, line) == 0
end

-- Removes the dead, as many as a call for this lock alone would remove.
local function remove_the_dead()
  for _ = 1, BOUND / SHARE do
    move_on()
    if nobody_is_left() then return end
  end
end

-- Reads what is known of the name, and takes over its capacity. Returns a text if the script cannot go on, since others use the
-- name for another kind.
local function settle_kind()
  if out_of_range(waiter_ttl) then return 'ERR waiter_ttl out of range' end
  if not capacity or capacity < 1 then return 'ERR capacity out of range' end
  known, known_capacity = open()
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
      remove_the_dead()
    end
    if not are_left_over and not nobody_is_left() then
      return string.format('CONFLICT %s %.0f', known, known_capacity)
    end
    kind, capacity = ours, our_capacity
    open()
    known, known_capacity = nil, nil
    -- Nobody uses the name as the kind in its notes. They stay until somebody holds it as ours or waits for it: a mere look must
    -- not forget a capacity that was set.
    others_set, is_set, noted_kind, notes_are_new = is_set, false, nil, true
  end
  capacity = known_capacity or capacity
end

