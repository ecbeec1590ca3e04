-- The line of those who wait, in the order in which they came, and how it moves.
--
-- Line    owner field -> its place: when it came, in microseconds of the server's clock, each place once. Of a
--         read-write lock, readers stand in it twice: as '<' and the field at their place minus READERS as well, so that
--         the readers are found without going through the writers.
-- Notes   <owner field>        the part that it wants and for how long in ms, as long as it is in line; 'r' if it rests: it
--                              has waited for long, and shows signs of life again when it is told that the line has moved
--         life:<client>        when the client counts as dead unless it gives a sign, the secret of its last sign, and how
--                              many of its owner fields are in line
--         asked:<owner field>  when it was first and last told to give a sign at once, and whether anybody heard it
--         state                see clock.lua, and two places:
--                              near: everybody up to it was told to show signs of life;
--                              sleepers: nobody behind it was answered that it may sleep, or rests
--         written, reading     see readers_first()
--         kind, set            kind and capacity; that somebody has set the capacity

-- How long a capacity that was set is remembered since it was last used, in ms: thirty days, so that what runs once a
-- month still finds it.
local REMEMBERED = 2592000000

local READERS = 9007199254740992 -- 2^53

local from, waiter_ttl -- who publishes; for how long after a sign of life a client counts as alive
local reading, written
local lives, wants -- what is known by now: client -> its life, owner field -> what it wants
local moved -- somebody has left the line
local changed, changes -- the names of the notes that change, in order; name -> the new value, false if it goes
local mail, addressees -- client -> the words for it; the clients, in order
local asker, asks_for, number_of_asker, refusal -- who runs this, for how long it asks, and what came of it
local asks_again -- it has to be answered whether it is near the front
local entering -- those who are let in, but not written down yet
local noted_kind, notes_are_new, somebody_waits
local sign_is_due -- there is room for somebody silent, who keeps it until a sign comes or waiter_ttl is over

-- Notes are written together at the end.
local function note(name, value)
  if changes[name] == nil then changed[#changed + 1] = name end
  changes[name] = value
end

local function erase(name)
  note(name, false)
end

local function write_notes()
  local set, gone = {}, {}
  for _, name in ipairs(changed) do
    if changes[name] then
      set[#set + 1] = name
      set[#set + 1] = changes[name]
    else
      gone[#gone + 1] = name
    end
  end
  if #gone > 0 then redis.call('hdel', notes, unpack(gone)) end
  if #set > 0 then redis.call('hset', notes, unpack(set)) end
  changed, changes = {}, {}
end

local function client_of(field)
  return field:match('^(.*):%d+$') or field
end

-- Reads what is known of this name. Nothing was written yet.
local function open()
  lives, wants, changed, changes, mail, addressees = {}, {}, {}, {}, {}, {}
  number_of_asker, refusal, entering, somebody_waits, moved, sign_is_due = nil, nil, {}, false, false, false
  local noted = redis.call('hmget', notes, 'state', 'kind', 'set', 'reading', 'written')
  read_state(noted[1], waiter_ttl)
  noted_kind, is_set, reading, written = noted[2], noted[3] ~= false, tonumber(noted[4] or nil), noted[5]
  notes_are_new = not (noted[1] or noted_kind)
  return open_holders(noted_kind)
end

-- The life of a client, as it is noted. One of which nothing is known is silent.
local function life_of(client, noted)
  if not lives[client] then
    local ends, secret, entries = (noted or ''):match('^(%d+) (%d+) (%d+)$')
    lives[client] = { ends = tonumber(ends) or 0, secret = secret, entries = tonumber(entries) or 0 }
  end
  return lives[client]
end

local function note_life(client)
  local life = lives[client]
  if life.entries > 0 then
    note('life:' .. client, string.format('%.0f %s %d', life.ends, life.secret or '0', life.entries))
  else
    erase('life:' .. client)
  end
end

-- What the notes say of these owner fields.
local function read(fields)
  local entries, names = {}, {}
  for i, field in ipairs(fields) do
    local client = client_of(field)
    entries[i] = { field = field, client = client }
    names[3 * i - 2], names[3 * i - 1], names[3 * i] = field, 'asked:' .. field, 'life:' .. client
  end
  if #entries == 0 then return entries end
  local noted = redis.call('hmget', notes, unpack(names))
  for i, entry in ipairs(entries) do
    local want = wants[entry.field] or noted[3 * i - 2] or ''
    local part, lease, rests = want:match('^(%d+) (%d+)( ?r?)$')
    entry.part, entry.lease, entry.rests = tonumber(part), tonumber(lease), rests == ' r'
    local first, last, heard = (noted[3 * i - 1] or ''):match('^(%d+) (%d+) ([01])$')
    entry.asked, entry.asked_last, entry.heard = tonumber(first), tonumber(last), heard == '1'
    entry.life = life_of(entry.client, noted[3 * i])
  end
  return entries
end

-- So many from the front, without the first few: owner fields and places in turn.
local function places(skipped, count)
  return redis.call('zrange', line, 0, '+inf', 'BYSCORE', 'LIMIT', skipped, count, 'WITHSCORES')
end

-- The same, with what the notes say of them.
local function front(skipped, count)
  local found, fields = places(skipped, count), {}
  for i = 1, #found, 2 do
    fields[#fields + 1] = found[i]
  end
  local entries = read(fields)
  for i, entry in ipairs(entries) do
    entry.place = tonumber(found[2 * i])
  end
  return entries
end

local function lives_on(entry)
  return entry.life.ends - at > LEAST_LIFE
end

-- Whether it was told to give a sign since its client fell silent. What was asked before its last sign is of no account.
local function was_asked(entry)
  return entry.asked and entry.asked >= entry.life.ends
end

local function is_dead(entry)
  return not lives_on(entry) and was_asked(entry) and entry.asked + waiter_ttl <= at
end

-- Whether a caller that does not wait must not pass this waiter: its client lives, or has heard that it has to give a sign.
-- A waiter that rests gives its sign only then, so that it is often silent when its turn comes.
local function may_come(entry)
  return lives_on(entry) or was_asked(entry) and entry.heard and not is_dead(entry)
end

local function stands(field)
  return redis.call('zscore', line, field)
end

-- They wait no more. Nothing is left of them in the notes, and of a client nothing if it was the last one.
local function leave_all(entries)
  local gone = {}
  for i, entry in ipairs(entries) do
    gone[i] = entry.field
  end
  for i = 1, kind == 'rw' and #entries or 0 do
    gone[#gone + 1] = '<' .. entries[i].field
  end
  if #gone == 0 or redis.call('zrem', line, unpack(gone)) == 0 then return end
  moved = true
  for _, entry in ipairs(entries) do
    wants[entry.field] = nil
    erase(entry.field)
    if entry.asked then erase('asked:' .. entry.field) end
    entry.life.entries = entry.life.entries - 1
    note_life(entry.client)
  end
end

local function leave(entry)
  leave_all({ entry })
end

local function say(client, word)
  if not mail[client] then
    mail[client] = from
    addressees[#addressees + 1] = client
  end
  mail[client] = mail[client] .. ' ' .. word
end

-- Sends what there is to be said, each client all of it at once, on the channel that it alone hears. For each client,
-- whether anybody heard it.
local function send()
  local heard = {}
  for _, client in ipairs(addressees) do
    local receivers = redis.pcall('publish', channel .. ':' .. client, mail[client])
    heard[client] = type(receivers) == 'number' and receivers > 0
  end
  mail, addressees = {}, {}
  return heard
end

-- Gives it what it waits for.
local function grant(entry)
  entering[#entering + 1] = entry
  used = used + entry.part
  if kind == 'rw' and used >= capacity then
    written = '1'
    note('written', 1)
  end
end

-- Writes down who was let in, all at once, and tells those who did not ask just now. They cannot confirm before they
-- hear of it, and may be dead: so they hold no longer than their client counts as alive, and the holder says itself that
-- it lives on. Whether that was possible.
local function write_grants()
  if #entering == 0 then return true end
  for _, entry in ipairs(entering) do
    entry.ms = entry.field == asker and asks_for or math.min(entry.lease, entry.life.ends - at)
    used = used - entry.part
  end
  local first, err = draw(#entering)
  if first then first, err = put_in(entering, first) end
  local entered = entering
  entering = {}
  if not first then
    refusal = err
    return false
  end
  leave_all(entered)
  for i, entry in ipairs(entered) do
    if entry.field == asker then
      number_of_asker = first + i - 1
    else
      say(entry.client, string.format('%s=%.0f@%s', entry.field, first + i - 1, entry.life.secret))
    end
  end
  return true
end

-- Notes that it was told to give a sign at once.
local function ask(entry)
  if not was_asked(entry) then entry.asked = at end
  entry.asked_last = at
  say(entry.client, entry.field .. '!')
end

local function note_asked(entry, heard)
  entry.heard = heard
  note('asked:' .. entry.field, string.format('%.0f %.0f %d', entry.asked, entry.asked_last, heard and 1 or 0))
end

-- It has been told, and its answer may still come.
local function is_told(entry)
  return was_asked(entry) and entry.asked_last + waiter_ttl / 3 > at
end

-- Those who have waited while somebody wrote read before the next one writes: when the last writer leaves, that is
-- everybody in line up to 'reading'. They may stand far behind the window and be silent. Then they are told to give a
-- sign, and come by themselves; until all have come, or waiter_ttl is over, nobody writes. Whether that is so now.
local function readers_first(work)
  if kind ~= 'rw' or used >= capacity then return false, work end
  if written then
    written = nil
    erase('written')
    local last = redis.call('zrange', line, -1, -1, 'WITHSCORES')
    reading = tonumber(last[2])
    if reading then note('reading', string.format('%.0f', reading)) end
  end
  if not reading then return false, work end
  local up_to = string.format('%.0f', reading - READERS)
  local found = redis.call('zrange', line, '-inf', up_to, 'BYSCORE', 'LIMIT', 0, BOUND)
  for i, member in ipairs(found) do
    found[i] = member:sub(2)
  end
  local asked, dead, waits = {}, {}, false
  for _, reader in ipairs(read(found)) do
    if not reader.part or is_dead(reader) then
      dead[#dead + 1] = reader
    elseif lives_on(reader) then
      grant(reader)
    else
      waits = true
      if not is_told(reader) then
        ask(reader)
        asked[#asked + 1] = reader
      end
    end
    work = work - 1
  end
  leave_all(dead)
  waits = not write_grants() or waits
  if #found == BOUND and not waits then
    -- The others have to wait for a further call: the next of them is told to make it.
    local next = redis.call('zrange', line, '-inf', up_to, 'BYSCORE', 'LIMIT', 0, 1)
    for _, reader in ipairs(read({ next[1] and next[1]:sub(2) })) do
      ask(reader)
      asked[#asked + 1] = reader
      waits = true
    end
  end
  if #asked > 0 then
    local heard = send()
    for _, reader in ipairs(asked) do
      note_asked(reader, heard[reader.client])
    end
  end
  if not waits then
    reading = nil
    erase('reading')
  end
  return waits, work
end

-- Tells those at the front, so many that WINDOW of them are awake: they live, or were told and somebody heard it. Who is
-- new here shows signs of life from now on, and is told so if it may be asleep. Who is silent has to give a sign at once; it keeps its place for waiter_ttl,
-- since a message can be lost, and is told again until then. All of them are told at once, so that the dead cost that
-- time together. Where nobody listens, the next one is told too: somebody has to be awake who makes the next call.
local function watch(entries, are_all, work)
  local awake, seen = 0, 0
  -- Then those who rest need not be woken: it is not their turn, and they come by themselves when the holder has to have
  -- gone.
  local nothing_new = not moved and used >= capacity
  while #entries > 0 do
    local told, dead = {}, {}
    for _, entry in ipairs(entries) do
      if not entry.part or is_dead(entry) then
        dead[#dead + 1] = entry
      elseif entry.field == asker or entry.rests and nothing_new then
        awake = awake + 1
      elseif lives_on(entry) and not entry.rests and (entry.place <= near or is_awake(entry.place)) then
        awake = awake + 1
      elseif lives_on(entry) then
        say(entry.client, entry.field .. '?')
        told[#told + 1] = entry
      elseif is_told(entry) then
        if entry.heard then awake = awake + 1 end
      else
        ask(entry)
        told[#told + 1] = entry
      end
      near = math.max(near, entry.place)
    end
    leave_all(dead)
    work, seen = work - #entries, seen + #entries - #dead
    somebody_waits = seen > 0
    local heard = send()
    for _, entry in ipairs(told) do
      if heard[entry.client] then awake = awake + 1 end
      if not lives_on(entry) then note_asked(entry, heard[entry.client]) end
    end
    if are_all or awake >= WINDOW or work <= 0 then return end
    local count = WINDOW - awake
    entries = front(seen, count)
    are_all = #entries < count
  end
end

-- Lets in those at the front, in their order, as long as there is room. How much work is left.
local function let_in(readers_come, work)
  local entries, first, count, are_all, dead = {}, 1, 1, false, {}
  local function write()
    leave_all(dead)
    dead = {}
    return write_grants()
  end
  while used < capacity do
    local head = entries[first]
    if not head then
      if are_all or not write() then break end
      entries, first = front(0, count), 1
      -- If there is room for more of them, there may be room for many.
      are_all, count = #entries < count, math.min(BOUND, 4 * count)
    elseif not head.part or is_dead(head) then
      dead[#dead + 1] = head
      work, first = work - 1, first + 1
    else
      if head.part > capacity - used then break end
      sign_is_due = not lives_on(head) or readers_come and head.part == capacity
      if sign_is_due then break end
      -- Enough for one call. The next one is told to make another.
      if work <= 0 then
        say(head.client, head.field .. '!')
        break
      end
      grant(head)
      work, first = work - 1, first + 1
    end
  end
  write()
  return work
end

-- Lets in whoever may now. The head of the line gets what is free if its client lives. If it is silent, nobody passes it
-- until it gives a sign or was asked for one waiter_ttl ago.
local function admit()
  let_go()
  local readers_come, work = readers_first(BOUND)
  local head = tonumber(places(0, 1)[2])
  if head then
    work = let_in(readers_come, work)
    -- In a line that moves fast nobody is told to sleep, and nobody has to be woken.
    if asks_again or not is_awake(head) then
      local window = front(0, WINDOW)
      watch(window, #window < WINDOW, math.max(work, WINDOW))
    end
  end
  send()
end

local function remember_capacity()
  redis.call('hset', notes, 'kind', kind .. ' ' .. capacity, 'set', 1)
  redis.call('pexpire', notes, string.format('%.0f', REMEMBERED))
end

-- Writes down what has changed. Without anybody in line, the notes say no more than a capacity that was set. (A key goes by
-- an expiry of now: the right to delete is for those who use force.) Whether somebody waits now.
local function settle()
  local waits = somebody_waits or redis.call('exists', line) == 1
  settle_holders(waits)
  if waits then
    last_look = now
    note('state', state_note())
    write_notes()
    if notes_are_new and redis.call('pttl', notes) == -1 then
      redis.call('pexpire', notes, math.max(redis.call('pttl', line), 5 * waiter_ttl))
    end
  elseif redis.call('pexpire', notes, 0) == 1 and is_set then
    remember_capacity()
  end
  somebody_waits = false
  return waits
end

