-- Takes a lock or lines up for it, in all cases that no uncontended path has answered. See acquire_args.lua for KEYS, ARGV and the
-- reply. acquire_one.lua does that for one lock, acquire_each.lua for several.
local acquire

do -- a script has 200 local variables at most
  local own -- the caller's entry
  local left, is_over -- see holds()
  local was_used

  local function granted(number)
    return { GRANTED, number, settle() and 1 or 0 }
  end

  local function take(ms, is_there)
    local number, err = draw(1)
    if number and is_there then
      prolong(field, ms)
    elseif number then
      number, err = put_in({ { field = field, part = part, ms = ms } }, number)
    end
    if not number then error(err, 0) end
    return granted(number)
  end

  local function sign(follows)
    -- Our waiter_ttl differs from that of the previous client. The waiters in this line may show signs of life less often
    -- than we expect, so none of them counts as awake.
    if rhythm ~= waiter_ttl then sleepers, rhythm = math.max(sleepers, micros), waiter_ttl end
    own.life.ends, own.life.secret, own.life.ttl = at + waiter_ttl, secret, waiter_ttl
    if not own.place then own.life.entries = own.life.entries + 1 end
    note_life(own.client)
    wants[field] = string.format('%.0f %.0f%s', part, lease, manner == 'rest' and ' r' or follows and ' f' or '')
    note(field, wants[field])
    if noted_kind ~= kind .. ' ' .. capacity then note('kind', kind .. ' ' .. capacity) end
    -- This reader waits for a writer. When the writer leaves, readers that waited go before the next writer.
    if kind == 'rw' and used >= capacity and not written then
      written = '1'
      note('written', 1)
    end
  end

  -- A caller that had a place gets it back. Any other goes to the end, even if the server's clock was set back.
  local function line_up()
    local last = redis.call('zrange', line, '-1', '-1', 'WITHSCORES')
    local place = math.max(micros, last[2] and last[2] + 1 or 0)
    if had > 0 then
      place = math.min(place, had)
    elseif kind == 'fair' then
      note_ahead(last[1], own.client)
    end
    own.place = math.max(1, place)
    local written_place = string.format('%.0f', own.place)
    if kind == 'rw' and part == 1 then
      redis.call('zadd', line, written_place, field, string.format('%.0f', own.place - READERS), '<' .. field)
    else
      redis.call('zadd', line, written_place, field)
    end
  end

  -- A client may ask again only after half of line_ttl, and a little late. So more than half has to be left.
  local function keep_line()
    if redis.call('pttl', line) >= line_ttl * 3 / 4 then return end
    redis.call('pexpire', line, line_ttl_text)
    redis.call('pexpire', notes, is_set and string.format('%.0f', REMEMBERED) or line_ttl_text)
  end

  -- How many stand before the caller.
  local function number_before()
    return redis.call('zcount', line, '0', next_to(own.place))
  end

  -- Whether this sign of life changes nothing for others: there is no room, and a script has just looked at the front. If
  -- the caller is at the front itself, that script has already told it so, unless the caller has only just arrived.
  local function is_of_no_account(is_relied_on)
    if not is_recent or used < capacity then return false end
    return is_relied_on or is_near(own.place) or number_before() >= WINDOW
  end

  -- When a waiter near the front asks again. If the head does not fit in, the waiters behind it wait for the head too, and
  -- not only for holders. Only a client that asks notices the head's death, so they ask before the next lease is over.
  local function asks_again_after(again, a_third)
    if not blocked_by or blocked_by.field == field then return again end
    local soon = lives_on(blocked_by) and waiter_ttl or a_third
    return again < 0 and soon or math.min(again, soon)
  end

  local function wait()
    local is_new = not own.place
    asker, asks_for = field, lease
    let_go()
    sessions.end_them()
    if is_new and part <= capacity - used and redis.call('exists', line) == 0 then return take(lease) end
    -- In a quick line, the head came so short a time ago that a client that lines up now gets its turn before its second sign of
    -- life is due. That client shows one more sign before its callers count as asleep. All callers of a client share one life: the
    -- first of them shows that sign, and one of the others asks for all others. In a slow line the sign would only cost requests,
    -- so there no client shows it.
    local is_first_of_client = own.life.entries == 0
    local is_relied_on = is_new and had == 0
    local head = is_relied_on and tonumber(places('0', 1)[2] or nil)
    is_relied_on = is_relied_on and (not head or micros - head < rhythm * 1000 / 3)
    sign(is_relied_on and not is_first_of_client)
    if is_new then line_up() end
    is_relied_on = is_relied_on and is_awake(own.place)
    -- What has expired has to be written, even if there is still no room.
    local is_quiet = used == was_used and is_of_no_account(is_relied_on)
    if not is_quiet then
      asks_again = not is_relied_on
      admit()
      if number_of_asker then return granted(number_of_asker) end
      if refusal then error(refusal, 0) end
    end
    if manner == 'rest' or not is_relied_on and not is_near(own.place) then
      sleepers = math.max(sleepers, own.place)
      note('state', state_note())
    end
    if is_quiet then
      write_notes()
    else
      settle()
      tell_keeper(lock, channel, from, WAITS)
    end
    keep_line()
    local again, a_third = shortest_lease() or waiter_ttl, math.ceil(waiter_ttl / 3)
    if sign_is_due then again = math.min(a_third, math.max(1, sign_is_due)) end
    if is_unfinished then return { HELD, 0, own.place, 1, ahead } end
    if is_near(own.place) or relies_on_asker or is_relied_on and is_first_of_client then
      return { HELD, sessions.looks_again_after(asks_again_after(again, a_third)), own.place, 1, ahead }
    end
    if is_relied_on then return { HELD, again < 0 and a_third or math.min(again, a_third), own.place, 0, ahead } end
    -- All waiters near the front may die together with the holder. Then a client behind them makes the next call. A
    -- client that is further away makes it later: so a long line costs no more calls than a short one.
    local delay = math.max(0, number_before() - WINDOW) * math.ceil(waiter_ttl / (3 * WINDOW))
    return { HELD, again < 0 and again or again + delay, own.place, 0, ahead }
  end

  -- First lets in waiters from the line. A caller that does not wait gets what is still free then, unless a waiter ahead
  -- of it may come for it.
  local function try_once()
    if own.place then leave_all({ own }) end
    admit()
    if part <= capacity - used then
      write_notes() -- so that the next line reads which waiters were asked just now
      if not somebody_may_come(field) then return take(lease) end
    end
    settle()
    return { tell_keeper(lock, channel, from, TRIES) and KEPT or HELD, shortest_lease() or waiter_ttl }
  end

  -- Wakes a waiter of a condition that had a place and is no longer in line. Possible reasons: notify_all has removed it; it was
  -- removed because it was silent for too long; the server has lost the line; or an answer was lost and it has a new owner field.
  -- Only in the first case was it certainly notified; in the others it may have missed a notification. It never holds a
  -- notification here, so it keeps none from another waiter.
  local function wake_unnotified()
    admit()
    local number, err = draw(1)
    if not number then error(err, 0) end
    redis.call('zadd', lock, string.format('%.0f', now + lease), field, -1, '=' .. field)
    return granted(number)
  end

  local function attempt()
    sessions.erase_note(notes, field)
    -- The old hold may be gone without a release, and perhaps the line with it. In that case nobody has notified the waiters.
    if old ~= '' and not end_hold(old) and nobody_is_left() then redis.pcall('publish', channel, from) end
    if is_over then end_hold(field) end -- put_in() would count it twice
    if left then return take(math.max(lease, left), true) end
    if within ~= '' and holds(within) then
      if own.place then leave_all({ own }) end
      return take(lease)
    end
    if kind == 'condition' and had > 0 and not own.place then return wake_unnotified() end
    return ((manner == 'wait' or manner == 'rest') and wait or try_once)()
  end

  -- Only this script adds the caller to a line, so a line in which nobody else stands is its own.
  local function others_stand()
    for _, member in ipairs(redis.call('zrange', line, '0', '2')) do
      if member ~= field and member ~= '<' .. field then return true end
    end
  end

  -- A command was refused: undo the others. A key that this script has created may have no TTL yet, and is deleted. A key of
  -- others may have none either: somebody has persisted it, or another program has written it.
  local function undo()
    entering, somebody_waits = {}, false
    if not left then pcall(end_hold, field) end
    pcall(leave_all, { own })
    pcall(settle)
    for key, is_new in pairs({ [lock] = lock_is_new, [line] = not others_stand(), [notes] = notes_are_new }) do
      if is_new and redis.pcall('pttl', key) == -1 then redis.pcall('del', key) end
    end
  end

  local function refuse(text)
    if own.place then leave_all({ own }) end
    if old ~= '' then end_hold(old) end
    move_on()
    return nil, text
  end

  -- The reply; or nil, and why the request is refused. `named_capacity`: what the caller says. The name is open.
  function acquire(named_capacity)
    own = read({ field })[1]
    -- This also checks newcomers: a line key of another type fails here, before a write that would have to be undone.
    own.place = tonumber(redis.call('zscore', line, field) or nil)
    left, is_over = holds(field)
    was_used = used
    check_writable(not own.place and not left and had == 0 and old == '')
    -- Compare the capacity that a newcomer names with that of the lock. For holders and waiters, the script did this when
    -- they came.
    local is_newcomer = not own.place and not left and had == 0
    if is_newcomer and known and not is_set and capacity ~= named_capacity then
      remove_the_dead()
      if not nobody_is_left() then return refuse(string.format('CONFLICT %s %.0f', kind, capacity)) end
      capacity = named_capacity
    end
    -- A caller that wants more than the capacity would wait forever.
    if part > capacity and not left then return refuse(string.format('PERMITS %.0f of %.0f', part, capacity)) end
    local fine, reply = pcall(attempt)
    if fine then return reply end
    undo()
    return nil, type(reply) == 'table' and reply.err or tostring(reply)
  end
end

