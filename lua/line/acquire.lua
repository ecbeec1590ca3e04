-- Take a lock or a part of it, or wait for it in line: also the sign of life of somebody who waits.
--
-- KEYS   see head.lua
-- ARGV   ..., owner field, the part wanted, lease in ms, manner ('wait': in line if it cannot be had now | 'rest': as
--        'wait', and it shows the next sign of life only when it is told that the line has moved | 'once': now or
--        never), the owner field within whose hold it needs no room ('': nobody's), its place as it was answered before
--        (0: it never was), a secret that a grant by message repeats, so that whoever waits knows that it is no other's
--        message, an owner field that is given back first ('': none), how long a line is kept without a sign, in ms
-- Reply  1, grant, waiting       taken; the grant is the new value of the counter. Waiting: 1 if somebody is in line now
--        0, TTL in ms, place, near   in line; by then the first of the holders has to go (-1: the key has no TTL), or one who
--                                is silent, and for whom there is room, may have answered. Near: 1 if it has to show
--                                signs of life, and to ask again by then even if it rests: perhaps nobody else can
--        grant                   the same, and nobody is in line: alone, since the server takes long to look through a table
--        0, TTL in ms            not taken, and not in line
--        an error of CONFLICT: others use the name for another kind, or with another capacity, and nobody has set one
--        an error of PERMITS: there is not so much in all
--
-- Run again for the same owner field, it finds its own work: in line it keeps its place, and what it was given meanwhile
-- it has for the whole lease. Who was put out, or comes under another owner field since an answer was lost, says its
-- place and has it again.

local field, part, lease, manner, within = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local had, secret, old, line_ttl = tonumber(ARGV[12]), ARGV[13], ARGV[14], tonumber(ARGV[15])

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if not had or had < 0 then return redis.error_reply('ERR place out of range') end
if not (secret or ''):match('^%d+$') then return redis.error_reply('ERR secret out of range') end
if not line_ttl or line_ttl < 1 then return redis.error_reply('ERR line_ttl out of range') end

local own = read({ field })[1]
own.place = tonumber(stands(field) or nil)
local left = holds(field)
check_writable(not own.place and not left and had == 0 and old == '')

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

local function sign()
  own.life.ends, own.life.secret, rhythm = at + waiter_ttl, secret, waiter_ttl
  if not own.place then own.life.entries = own.life.entries + 1 end
  note_life(own.client)
  wants[field] = string.format(manner == 'rest' and '%.0f %.0f r' or '%.0f %.0f', part, lease)
  note(field, wants[field])
  note('kind', kind .. ' ' .. capacity)
  -- Those who read wait for a writer: when it leaves, they come before the next one.
  if kind == 'rw' and used >= capacity and not written then
    written = '1'
    note('written', 1)
  end
end

-- Who had a place has it again. All others come behind the last one, whatever the server's clock says.
local function line_up()
  local last = redis.call('zrange', line, -1, -1, 'WITHSCORES')[2]
  local place = math.max(micros, last and last + 1 or 0)
  if had > 0 then place = math.min(place, had) end
  own.place = math.max(1, place)
  local written_place = string.format('%.0f', own.place)
  if kind == 'rw' and part == 1 then
    redis.call('zadd', line, written_place, field, string.format('%.0f', own.place - READERS), '<' .. field)
  else
    redis.call('zadd', line, written_place, field)
  end
end

local function keep_line()
  if redis.call('pttl', line) >= line_ttl / 2 then return end
  redis.call('pexpire', line, line_ttl)
  if not is_set then redis.call('pexpire', notes, line_ttl) end
end

local function wait()
  local is_new = not own.place
  asker, asks_for = field, lease
  if is_new then
    let_go()
    if part <= capacity - used and redis.call('exists', line) == 0 then return take(lease) end
  end
  sign()
  if is_new then line_up() end
  admit()
  if number_of_asker then return granted(number_of_asker) end
  if refusal then error(refusal, 0) end
  settle()
  keep_line()
  local again = shortest_lease() or waiter_ttl
  if sign_is_due then again = math.ceil(waiter_ttl / 3) end
  return { HELD, again, own.place, own.place <= near and 1 or 0 }
end

-- What is free once the line was let in is free for whoever does not wait, unless somebody alive waits in front.
local function try_once()
  if own.place then leave(own) end
  admit()
  local is_free = part <= capacity - used
  for _, entry in ipairs(is_free and front(0, WINDOW) or {}) do
    is_free = is_free and not lives_on(entry)
  end
  if is_free then return take(lease) end
  settle()
  return { HELD, shortest_lease() or waiter_ttl }
end

local function give_back_old()
  if put_out(old) then return end
  -- It went without a release, and perhaps the line with it. Then nobody has told those who waited.
  if nobody_is_left() then redis.pcall('publish', channel, from) end
end

local function attempt()
  if old ~= '' then give_back_old() end
  if left then return take(math.max(lease, left), true) end
  if within ~= '' and holds(within) then
    if own.place then leave(own) end
    return take(lease)
  end
  return ((manner == 'wait' or manner == 'rest') and wait or try_once)()
end

-- Who may not do all of it has done nothing of it. Only a key that is new has no TTL yet.
local function undo()
  entering, somebody_waits = {}, false
  if not left then pcall(put_out, field) end
  pcall(leave, own)
  pcall(settle)
  for i = 2, 4 do
    if redis.pcall('pttl', KEYS[i]) == -1 then redis.pcall('del', KEYS[i]) end
  end
end

local function refuse(text)
  if own.place then leave(own) end
  if old ~= '' then put_out(old) end
  admit()
  settle()
  return redis.error_reply(text)
end

-- Whoever came before has agreed.
local is_newcomer = not own.place and not left and had == 0
if is_newcomer and known and not is_set and capacity ~= tonumber(ARGV[3]) then
  admit()
  settle()
  if not nobody_is_left() then
    return refuse('CONFLICT ' .. kind .. ' with a capacity of ' .. string.format('%.0f', capacity))
  end
  capacity = tonumber(ARGV[3])
end
-- More than there is could be waited for without an end.
if part > capacity and not left then
  return refuse(string.format('PERMITS %.0f of %.0f', part, capacity))
end

local fine, reply = pcall(attempt)
if fine then return reply end
undo()
return redis.error_reply(type(reply) == 'table' and reply.err or tostring(reply))
