-- What most callers do that come to a held lock which only one holder can have at a time: they go to the end of the
-- line, or are the first in it. This does the same as wait() of acquire.lua, if the newcomer changes nothing for
-- others: no client can be let in, and no script has to look at the front. It runs before the functions of the line are
-- created, since creating them takes half of the server's time for such a call. In every other case acquire.lua
-- continues. acquire_one_line_up.lua calls this for one request, acquire_each_line_up.lua for several.

-- Whether nobody in line came at this place or later. ZCOUNT costs the server half as much as reading the last waiter,
-- which only the fair lock has to know.
local function is_last(line, kind, place, client)
  if kind ~= 'fair' then return redis.call('zcount', line, place, '+inf') == 0 end
  local last = redis.call('zrange', line, '-1', '-1', 'WITHSCORES')
  note_ahead(last[1], client)
  return last[2] and tonumber(last[2]) < micros
end

-- Whether the line is quick, since nobody in it came longer ago than that. See wait() of acquire.lua.
local function is_all_quick(line)
  return redis.call('zcount', line, '-inf', string.format('%.0f', math.floor(micros - rhythm * 1000 / 3))) == 0
end

-- The reply; nil if it is not a usual case.
local function line_up_as_usual(lock, line, notes, kind, field, lease, waiter_ttl, line_ttl, publisher, secret, channel)
  local client = field:match('^(.*):%d+$')
  local ttl_of_life = tonumber(waiter_ttl) or 0
  if not client or ttl_of_life < 1 or line_ttl == '0' or lease:find('%D') then return end
  local life, for_one = 'life:' .. client, kind .. ' 1'
  local noted = redis.pcall('hmget', notes, 'state', 'kind', field, life)
  local state, known, stands, alive = noted[1], noted[2], noted[3], noted[4]
  local is_first = state == false and known == false and redis.call('exists', line) == 0
  if not is_first and not (state and known == for_one and not stands) then return end
  read_state(state, ttl_of_life)
  local place = string.format('%.0f', micros)
  if not is_first then
    local is_usual = is_recent and rhythm == ttl_of_life and sleepers < micros and near < micros
      and is_all_quick(line) and is_last(line, kind, place, client) and redis.call('pttl', line) >= line_ttl * 3 / 4
    if not is_usual then return end
  end
  local ttl = time_of_holder(lock, kind, field, is_first)
  if not ttl or ttl <= 0 then return end
  -- If the memory is full, this is refused. acquire.lua then says whether the caller may line up nevertheless.
  if redis.pcall('zadd', line, 'NX', place, field) ~= 1 then return end
  local entries = tonumber((alive or ''):match('^%d+ %d+ (%d+) ')) or 0
  local sign = string.format('%.0f %s %d %s', at + rhythm, secret, entries + 1, waiter_ttl)
  local wants = '1 ' .. lease .. (entries > 0 and ' f' or '')
  local is_written = type(redis.pcall('hset', notes, field, wants, life, sign)) == 'number'
  if is_first and is_written then
    is_written = redis.pcall('pexpire', line, line_ttl) == 1 and redis.pcall('pexpire', notes, line_ttl) == 1
      and type(redis.pcall('hset', notes, 'state', state_note(), 'kind', for_one)) == 'number' and begin_line(lock, channel, publisher)
  end
  if is_written then
    -- The first caller of a client shows a sign of life by itself, and one of the others asks for all of them.
    if entries == 0 then return { 0, ttl, micros, 1, ahead } end
    return { 0, math.min(ttl, math.ceil(rhythm / 3)), micros, 0, ahead }
  end
  -- One of the commands was refused: undo the others.
  redis.pcall('zrem', line, field)
  redis.pcall('hdel', notes, field)
  if alive then
    redis.pcall('hset', notes, life, alive)
  else
    redis.pcall('hdel', notes, life)
  end
end

