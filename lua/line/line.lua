-- The line: the waiters of a name in their order of arrival. The line lets in its head when there is room for what the
-- head wants (a lock, or so many permits), waits for silent waiters, and removes dead ones. The client's half is
-- src/core/waiting.rs. acquire_line_up.lua and release_to_head.lua do the usual turn of a lock with one holder without
-- these functions.
--
-- Line    owner field -> its place: when it came, in microseconds of the server's clock. No two clients have equal places; two
--         owner fields of one client may, if a request was cut off and asked again. In the line of a read-write lock, each
--         reader stands twice. The second member is '<' and the owner field; its score is the reader's place minus READERS.
--         So a script finds the readers without going through the writers.
-- Notes   <owner field>        what the waiter wants: its part, and its lease in ms. Then perhaps a letter. 'r': it rests, since
--                              it has waited for long, and shows a sign of life only when it is told to. 'f': it is a
--                              follower, which came to a quick line behind another caller of its client; one of them
--                              shows the next sign for all
--         life:<client>        when the client counts as dead unless it shows a sign of life; the secret of its last sign;
--                              how many of its owner fields are in line; its waiter_ttl
--         asked:<client>       when it was told to show a sign of life at once, the first and the last time, and whether
--                              anybody heard it. A client that does not answer is dead with all its places
--         state                see clock.lua, and three places:
--                              near: all waiters up to here were told to show signs of life;
--                              sentry: so was the waiter at this place, behind callers of one client; 0: none; see
--                              post_sentry();
--                              sleepers: the last place whose waiter may be asleep. A waiter behind it is awake for one
--                              waiter_ttl after it lined up
--         written, reading     see readers_first()
--         swept                see sweep()
--         kind, set            kind and capacity; that the capacity was set explicitly

-- How long after its last use an explicitly set capacity is remembered, in ms: thirty days, so that a job that runs
-- once a month still finds it.
local REMEMBERED = 2592000000

local READERS = 9007199254740992 -- 2^53

local from, waiter_ttl -- the client that publishes; for how long after a sign of life a client counts as alive
local reading, written
local lives, wants -- what this script has read or written: client -> its life, owner field -> what it wants
local moved -- whether a waiter has left the line
local changed, changes -- the names of the notes that change, in order; name -> the new value, or false to erase it
local mail, addressees -- client -> the message for it; these clients, in order
-- The owner field that this script was called for, and its lease; the grant that it got, or the error.
local asker, asks_for, number_of_asker, refusal
local asks_again -- the reply has to report whether the caller is near the front
-- The caller counts as awake, although it stands behind a client that is silent and fills the front. So it has to show signs of
-- life, as those near the front do.
local relies_on_asker
local entering -- waiters that are let in, but not written yet
local noted_kind, notes_are_new, somebody_waits
local swept_to, swept_since -- see sweep()
local has_lost -- this script has found a silent client that nobody hears
local is_unheard -- nobody has heard of a grant
local suspects -- waiters have died within the last waiter_ttl, so that only those count as awake that hear a message
local is_unfinished -- more is to be done than one call may do: the caller has to call again
local others_set -- the notes are a capacity that was set for another kind, which nobody uses
local sign_is_due -- there is room for a silent waiter, reserved until it shows a sign or this many ms are over
local blocked_by -- the head, if there is room, but too little for what it wants

-- Changes a note. write_notes() writes all changes together at the end.
local function note(name, value)
  if changes[name] == nil then changed[#changed + 1] = name end
  changes[name] = value
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

-- Reads the state of this name from Redis. Nothing has been written yet.
local function open()
  lives, wants, changed, changes, mail, addressees = {}, {}, {}, {}, {}, {}
  number_of_asker, refusal, entering, somebody_waits, moved, sign_is_due = nil, nil, {}, false, false, false
  blocked_by, is_unfinished = nil, false
  local noted = redis.call('hmget', notes, 'state', 'kind', 'set', 'reading', 'written', 'swept')
  read_state(noted[1], waiter_ttl)
  noted_kind, is_set, reading, written = noted[2], noted[3] ~= false, tonumber(noted[4] or nil), noted[5]
  swept_to, swept_since = (noted[6] or ''):match('^(%d+) (%d+)$')
  swept_to, swept_since = tonumber(swept_to) or 0, tonumber(swept_since) or 0
  notes_are_new = not (noted[1] or noted_kind)
  return open_holders(noted_kind)
end

-- The life of a client, from the notes. A client without a note counts as silent.
local function life_of(client, noted, noted_asked)
  if not lives[client] then
    local ends, secret, entries, ttl = (noted or ''):match('^(%d+) (%d+) (%d+) (%d+)$')
    local asked, last, heard = (noted_asked or ''):match('^(%d+) (%d+) ([01])$')
    lives[client] = {
      ends = tonumber(ends) or 0, secret = secret, entries = tonumber(entries) or 0, ttl = tonumber(ttl) or waiter_ttl,
      asked = tonumber(asked), asked_last = tonumber(last), heard = heard == '1'
    }
  end
  return lives[client]
end

local function note_life(client)
  local life = lives[client]
  if life.entries > 0 then
    note('life:' .. client, string.format('%.0f %s %d %d', life.ends, life.secret or '0', life.entries, life.ttl))
  else
    note('life:' .. client, false)
    if life.asked then note('asked:' .. client, false) end
  end
end

-- The entries of these owner fields, from the notes.
local function read(fields)
  local entries, names = {}, {}
  for i, field in ipairs(fields) do
    local client = client_of(field)
    entries[i] = { field = field, client = client }
    names[3 * i - 2], names[3 * i - 1], names[3 * i] = field, 'asked:' .. client, 'life:' .. client
  end
  if #entries == 0 then return entries end
  local noted = redis.call('hmget', notes, unpack(names))
  for i, entry in ipairs(entries) do
    local want = wants[entry.field] or noted[3 * i - 2] or ''
    local part, lease, how = want:match('^(%d+) (%d+)( ?[rf]?)$')
    entry.part, entry.lease, entry.rests, entry.follows = tonumber(part), tonumber(lease), how == ' r', how == ' f'
    entry.life = life_of(entry.client, noted[3 * i], noted[3 * i - 1])
  end
  return entries
end

-- The first `count` waiters from '0' on, or behind a place: alternating owner fields and places.
local function places(start, count)
  return redis.call('zrange', line, start, '+inf', 'BYSCORE', 'LIMIT', '0', count, 'WITHSCORES')
end

-- The bound of a range that begins or ends next to this place, and leaves it out.
local function next_to(place)
  return string.format('(%.0f', place)
end

-- These waiters, as entries.
local function entries_of(found)
  local fields = {}
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

-- Whether the client of this waiter was told to show a sign of life since it counts as silent. lives_on() calls a client
-- silent LEAST_LIFE before its life ends. What the client was told before its last sign does not count.
local function was_asked(entry)
  local life = entry.life
  return life.asked and life.asked >= life.ends - LEAST_LIFE
end

-- For how long this silent client may still answer before it is dead: its own waiter_ttl. The client that runs this script may
-- have a shorter one, in which a slower client cannot answer.
local function may_answer_for(entry)
  return was_asked(entry) and entry.life.asked + entry.life.ttl - at or entry.life.ttl
end

-- Whether the client of this waiter was told, and showed no sign.
local function is_dead(entry)
  return not lives_on(entry) and may_answer_for(entry) <= 0
end

-- Whether this waiter keeps out a caller that only tries. The waiter does so as long as its client counts as alive. If
-- a client has heard that the waiter should show a sign, the waiter does so for one waiter_ttl from then on. A waiter
-- that rests shows a sign only when told, so it is often silent when its turn comes.
local function may_come(entry)
  return entry.life.ends > at or was_asked(entry) and entry.life.heard and not is_dead(entry)
end

-- Whether any waiter except the caller may come for what is free. This reads more than the window: the whole window may
-- belong to one dead client, and the next waiter may be alive.
local function somebody_may_come(caller)
  for _, entry in ipairs(entries_of(places('0', BOUND))) do
    if entry.field ~= caller and may_come(entry) then return true end
  end
  return false
end

-- A message without a word wakes nobody: its answer only shows whether anybody hears it.
local function call_up(client)
  if mail[client] then return end
  mail[client] = from
  addressees[#addressees + 1] = client
end

local function say(client, word)
  call_up(client)
  mail[client] = mail[client] .. ' ' .. word
end

-- Removes these entries from the line and the notes. The life of a client is removed with the last of its entries. A waiter whose
-- want cannot be read may be alive: somebody has deleted the notes, or its client has another version. So it is told, and comes back.
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
    if not entry.part then say(entry.client, entry.field .. '!') end
    wants[entry.field] = nil
    note(entry.field, false)
    entry.life.entries = entry.life.entries - 1
    note_life(entry.client)
  end
end

-- The client that runs this script takes these waiters out. So it is alive, and whatever it was told has gone with them: it is told
-- again, by another waiter of its own, before it counts as dead.
local function withdraw(entries)
  leave_all(entries)
  for _, entry in ipairs(entries) do
    if entry.life.asked then
      entry.life.asked = nil
      note('asked:' .. entry.client, false)
    end
  end
end

-- Sends the mail: one message to each client, on the channel that only this client hears. Returns for each client
-- whether anybody heard it.
local function send()
  local heard = {}
  for _, client in ipairs(addressees) do
    local receivers = redis.pcall('publish', channel .. ':' .. client, mail[client])
    heard[client] = type(receivers) == 'number' and receivers > 0
    is_unheard = is_unheard or receivers == 0 and mail[client]:find('=', 1, true)
  end
  mail, addressees = {}, {}
  return heard
end

-- Lets this waiter in. write_grants() writes the grant.
local function grant(entry)
  entering[#entering + 1] = entry
  used = used + entry.part
  if kind == 'rw' and used >= capacity then
    written = '1'
    note('written', 1)
  end
end

-- Writes the grants of all waiters that were let in, and notifies them, except the caller, which gets a reply. A waiter
-- that is notified by a message may be dead, and cannot confirm its grant before it receives the message. So its hold
-- lasts only as long as its client counts as alive; after that, the client has to renew it. Returns whether the grants
-- could be written.
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
      say(entry.client, grant_word(entry.field, first + i - 1, entry.life.secret))
    end
  end
  return true
end

-- Tells this waiter to show a sign of life of its client at once.
local function ask(entry)
  if not was_asked(entry) then entry.life.asked = at end
  entry.life.asked_last = at
  say(entry.client, entry.field .. '!')
end

local function note_asked(entry, heard)
  local life = entry.life
  has_lost = has_lost or not heard and life.asked == at
  life.heard = heard
  note('asked:' .. entry.client, string.format('%.0f %.0f %d', life.asked, life.asked_last, heard and 1 or 0))
end

-- Whether its client was told recently, so that the answer may still come.
local function is_told(entry)
  return was_asked(entry) and entry.life.asked_last + entry.life.ttl / 3 > at
end

-- Readers that waited for a writer go before the next writer: 'written' says that a writer was let in. When it leaves,
-- these readers are all readers in line up to the place 'reading'. They may be far behind the window and silent. Then
-- they are told to show a sign of life, and ask by themselves. Nobody writes until all of them have asked, or
-- waiter_ttl is over. Returns whether that is so now, and how much work is left.
local function readers_first(work)
  if kind ~= 'rw' or used >= capacity then return false, work end
  if written then
    written = nil
    note('written', false)
    local last = redis.call('zrange', line, '-1', '-1', 'WITHSCORES')
    reading = tonumber(last[2])
    if reading then note('reading', string.format('%.0f', reading)) end
  end
  if not reading then return false, work end
  local up_to = string.format('%.0f', reading - READERS)
  local found = redis.call('zrange', line, '-inf', up_to, 'BYSCORE', 'LIMIT', '0', SHARE)
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
  if #found == SHARE and not waits then
    -- The other readers are left for another call: tell the first of them to make it.
    local next = redis.call('zrange', line, '-inf', up_to, 'BYSCORE', 'LIMIT', '0', '1')
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
  is_unfinished = #found == SHARE and (#dead > 0 or has_lost)
  if not waits then
    reading = nil
    note('reading', false)
  end
  return waits, work
end

-- Whether the turn of a waiter that rests has not come nearer. Then it need not be woken: it asks by itself when the
-- holder's lease is over.
local function nothing_is_new()
  return not moved and used >= capacity and not suspects
end

-- Whether this waiter shows signs of life by itself.
local function shows_signs(entry)
  return not suspects and lives_on(entry) and not entry.rests and (is_near(entry.place) or is_awake(entry.place) and not entry.follows)
end

-- Whether this waiter is awake, or its client hears the message that wakes it. The client lives, or may come back.
local function wake(entry)
  if entry.field == asker or entry.rests and nothing_is_new() or shows_signs(entry) then return true end
  if not lives_on(entry) and is_told(entry) then return entry.life.heard end
  if lives_on(entry) then
    say(entry.client, entry.field .. '?')
  else
    ask(entry)
  end
  local heard = send()[entry.client]
  if not lives_on(entry) then note_asked(entry, heard) end
  return heard
end

-- Looks at the front, waiter by waiter, until WINDOW of them are awake: one client has to be awake to make the next call.
--   alive, and has shown signs of life before                 awake
--   alive, but rests, follows, or may be asleep               told that it is near: from now on it shows signs itself
--   silent                                                    its client is told to show a sign at once
--   silent, and its client was told already                   keeps its place for waiter_ttl after that
--   silent for longer                                         dead: leaves the line
-- A waiter that is told counts as awake if a client hears the message. All silent clients are told at once, so that all
-- dead ones together cost waiter_ttl once. They are told again until that time is over, since a message can be lost. A
-- process that is stopped or cut off still seems to listen, and many of its callers may wait. So a silent client counts
-- once, and only WINDOW of its waiters are told. If all waiters that are awake belong to one client, returns that client; nil:
-- none is awake; false: there are several. Also returns the place up to which it has looked, unless nobody is behind that,
-- and how much work is left.
local function look_at(entries, are_all, work)
  local awake, seen, silent, was_told, hears, is_front = 0, 0, {}, {}, {}, true
  local only_client, last
  local function is_awake_too(entry)
    awake = awake + 1
    only_client = (only_client == nil or only_client == entry.client) and entry.client
  end
  local function count(entry)
    if lives_on(entry) or entry.nth == 1 then is_awake_too(entry) end
  end
  local nothing_new = nothing_is_new()
  while #entries > 0 do
    local told, dead = {}, {}
    for _, entry in ipairs(entries) do
      local client, is_dead_now = entry.client, not entry.part or is_dead(entry)
      local is_usual = entry.field == asker or entry.rests and nothing_new
      if not is_dead_now and not is_usual and not lives_on(entry) then
        if not silent[client] then was_told[client] = is_told(entry) end
        entry.nth = (silent[client] or 0) + 1
        silent[client] = entry.nth
      end
      if is_dead_now then
        dead[#dead + 1] = entry
      elseif is_usual or shows_signs(entry) then
        is_awake_too(entry)
      elseif lives_on(entry) then
        say(client, entry.field .. '?')
        told[#told + 1] = entry
      elseif was_told[client] or hears[client] == false then
        hears[client] = entry.life.heard
        if hears[client] then count(entry) end
        is_front = is_front and (entry.nth <= WINDOW or not hears[client])
      elseif entry.nth > WINDOW then
        is_front = false
      else
        ask(entry)
        told[#told + 1] = entry
      end
      if is_front then
        near = math.max(near, entry.place)
      elseif entry.field == asker and awake + #told <= WINDOW then
        relies_on_asker = true
      end
    end
    last = entries[#entries].place
    leave_all(dead)
    work, seen = work - #entries, seen + #entries - #dead
    somebody_waits = seen > 0
    local heard = send()
    for _, entry in ipairs(told) do
      hears[entry.client] = heard[entry.client]
      if heard[entry.client] then count(entry) end
      if not lives_on(entry) then note_asked(entry, heard[entry.client]) end
    end
    if are_all then return only_client, nil, work end
    if awake >= WINDOW or work <= 0 then return only_client, last, work end
    local missing = is_front and WINDOW - awake or work
    entries = entries_of(places(next_to(last), missing))
    are_all = #entries < missing
  end
  return only_client, nil, work
end

-- The first of these waiters that can be woken, and is of another client than `only_client`: its place.
local function woken_of(entries, only_client)
  for _, entry in ipairs(entries) do
    if entry.client ~= only_client and entry.part and not is_dead(entry) and wake(entry) then return entry.place end
  end
end

-- All waiters that are awake at the front may be callers of one client, and die together, or none may be awake, since they
-- have died. Then a waiter of another client, the sentry, shows signs of life too: the one that did so before, or else the
-- caller or the last in line, or else the first one that sweep() finds. Returns whether one is missing.
local function lacks_sentry(only_client, goes_on)
  local is_missing = only_client == nil and goes_on
    or only_client and lives[only_client].entries < redis.call('zcount', line, '0', '+inf')
  local function one_of(place)
    return woken_of(entries_of(redis.call('zrange', line, place, place, 'BYSCORE', 'WITHSCORES')), only_client)
  end
  local before, its_place = sentry, is_missing and not only_client and asker and tonumber(redis.call('zscore', line, asker) or nil)
  sentry = is_missing and (
    sentry > 0 and one_of(string.format('%.0f', sentry)) or its_place
    or woken_of(entries_of(redis.call('zrange', line, '-1', '-1', 'WITHSCORES')), only_client)
  ) or 0
  relies_on_asker = relies_on_asker or its_place and sentry == its_place
  return is_missing and sentry == 0, before > 0
end

-- Whether a sweep has begun and not come to its end.
local function is_sweeping()
  return swept_to > 0 and suspects
end

local function note_swept(place, since)
  swept_to, swept_since = place, since
  note('swept', string.format('%.0f %.0f', place, since))
end

-- Goes through the line behind the front, SHARE waiters in one call, for as long as it finds silent clients that nobody
-- hears: all of them are asked at about the same time, so that the dead cost waiter_ttl once, wherever they stand. Also goes on
-- until it has found a sentry, if there is none. It begins anew if the front has lost another client or the sentry, and some
-- time later for those that died with the others and still counted as alive when it passed them. The note
-- 'swept' says how far it has come, and when it last found somebody. A waiter that is alive is not woken, unless it becomes the sentry.
local function sweep(from_place, work, only_client, is_missing, had_sentry)
  local place, began = swept_to, swept_since
  if not from_place then
    if place > 0 then note_swept(0, began) end
    return
  end
  local may_begin = not is_sweeping() and at >= began + rhythm / 3
  if has_lost or is_missing and (had_sentry or may_begin) then
    place, began = 0, at
  elseif suspects and may_begin then
    place = 0
  elseif not is_sweeping() then
    return
  end
  place = math.max(place, from_place)
  has_lost = false
  local entries, dead, silent = entries_of(places(next_to(place), work)), {}, {}
  for _, entry in ipairs(entries) do
    if not entry.part or is_dead(entry) then
      dead[#dead + 1] = entry
    elseif is_missing or not lives_on(entry) and not was_asked(entry) then
      call_up(entry.client)
      silent[#silent + 1] = entry
    end
    has_lost = has_lost or #dead > 0 or not lives_on(entry) and was_asked(entry) and not entry.life.heard
  end
  leave_all(dead)
  local heard, hearing = send(), {}
  for _, entry in ipairs(silent) do
    if heard[entry.client] then
      hearing[#hearing + 1] = entry
    elseif not lives_on(entry) and not was_asked(entry) then
      ask(entry)
      note_asked(entry, false)
      began = at
    end
  end
  if is_missing then
    sentry = woken_of(hearing, only_client) or 0
    is_missing = sentry == 0
  end
  local goes_on = #entries == work and (has_lost or is_missing)
  is_unfinished = is_unfinished or goes_on
  note_swept(goes_on and entries[#entries].place or 0, began)
end

-- Lets in the waiters at the front, in order, as long as there is room. Returns how much work is left.
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
      entries, first = entries_of(places('0', count)), 1
      -- There was room for all waiters that were read, so there may be room for many more.
      are_all, count = #entries < count, math.min(SHARE, 4 * count)
    elseif not head.part or is_dead(head) then
      if work <= 0 then
        is_unfinished = true
        break
      end
      dead[#dead + 1] = head
      work, first = work - 1, first + 1
    else
      if head.part > capacity - used then
        blocked_by = head
        break
      end
      if not lives_on(head) then
        sign_is_due = may_answer_for(head)
      elseif readers_come and head.part == capacity then
        sign_is_due = waiter_ttl
      end
      if sign_is_due then break end
      -- This is enough for one call: tell the next waiter to make another.
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

-- Looks at the front, and as far behind it as is needed.
local function look(work)
  local function look_at_front(most)
    local window = entries_of(places('0', WINDOW))
    return look_at(window, #window < WINDOW, most)
  end
  local most = is_sweeping() and WINDOW or math.max(work, WINDOW)
  local only_client, last, left = look_at_front(most)
  if has_lost and not suspects then
    suspects = true
    only_client, last, left = look_at_front(most)
  end
  local is_missing, had_sentry = lacks_sentry(only_client, last)
  sweep(last, math.max(work - most + left, WINDOW), only_client, is_missing, had_sentry)
end

-- Moves the line. The head gets what is free if its client is alive. If it is silent, nobody passes it until it shows a
-- sign of life, or until one waiter_ttl has passed since it was told to.
local function admit()
  has_lost, is_unheard, suspects = false, false, at < swept_since + rhythm
  let_go()
  local readers_come, work = readers_first(SHARE)
  local head = tonumber(places('0', 1)[2])
  if head then
    work = let_in(readers_come, work)
    -- If the head is awake, the whole line is awake, and nobody has to be woken.
    if asks_again or suspects or not is_awake(head) then look(work) end
  end
  send()
  if is_unheard and redis.call('exists', line) == 1 then
    -- Perhaps its process has died, and many waiters with it: look behind the front too.
    note_swept(1, at)
    is_unfinished = true
  end
end

local function remember_capacity()
  redis.call('hset', notes, 'kind', kind .. ' ' .. capacity, 'set', 1)
  redis.call('pexpire', notes, string.format('%.0f', REMEMBERED))
end

-- Whether anybody stands in line. While the slot moves, a script cannot look at a line that it has emptied.
local function somebody_stands()
  local found = redis.pcall('exists', line)
  if type(found) ~= 'table' then return found == 1 end
  return not found.err:find('non local key', 1, true) and redis.call('exists', line) == 1
end

-- Writes what has changed. If nobody is in line, the notes keep only an explicitly set capacity. (An expiry of zero
-- deletes the key: so only users that may take locks away by force need the permission for DEL.) Returns whether
-- anybody waits now.
local function settle()
  local waits = somebody_waits or somebody_stands()
  settle_holders(waits)
  if others_set and (waits or redis.call('exists', lock) == 1) then
    redis.call('pexpire', notes, '0')
    others_set = false
  end
  if waits then
    last_look = now
    note('state', state_note())
    write_notes()
    if notes_are_new and is_set then remember_capacity() end
    if notes_are_new and redis.call('pttl', notes) == -1 then
      redis.call('pexpire', notes, math.max(redis.call('pttl', line), 5 * waiter_ttl))
    end
  elseif not others_set then
    redis.call('pexpire', notes, '0')
    if is_set then remember_capacity() end
  end
  somebody_waits = false
  return waits
end

-- Moves the line, and writes what has changed.
local function move_on()
  admit()
  settle()
end

