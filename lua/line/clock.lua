-- The clock by which those who wait are judged. It stands still when the server does.

local BOUND = 64 -- so many items of work there are in one call at the most
local WINDOW = 4 -- so many at the front of a line show signs of life
-- What a message grants ends with the sign of life that it was made for. Whoever would have no more than this left, in ms, might
-- hear of it too late: it has to give a sign first. It is a quarter of the shortest waiter_ttl.
local LEAST_LIFE = 12

local micros, now -- the server's clock
local at -- the clock of those who wait, in ms: it is this far behind the server's
local behind, after_gap, rhythm
local near, sleepers -- see line.lua
local last_look -- when somebody looked at the front, in ms
local is_recent -- somebody has just looked at the front

-- In a stall nobody can give a sign of life, and the first script after it may run before those that wait in the
-- sockets: it must put out nobody. Whoever is near the front comes three times per waiter_ttl, so that a gap of more
-- than half of that between two scripts is a stall, and the clock leaves it out. After a second gap in a row it is not:
-- nobody comes, or one who is far away, and the dead must not live on between the scripts. It also leaves out a step
-- back of the server's clock. The note says when a script last looked at the front, how far the clock was behind then,
-- whether that script came after a gap, the waiter_ttl of who gave the last sign (clients may differ in that, and whoever
-- runs this need not wait at all), and two places (see line.lua). It is longer than 64 bytes, so that Redis keeps the notes
-- as a table: in a short hash each look would go through all of it.
local function read_state(note, waiter_ttl)
  local time = redis.call('time')
  micros = time[1] * 1000000 + time[2]
  now = math.floor(micros / 1000)
  behind, after_gap, rhythm, near, sleepers, is_recent = 0, 0, waiter_ttl, 0, 0, false
  last_look = now
  local looked, was_behind, was_after_gap, was_rhythm, was_near, was_sleepers = (note or ''):match(
    '^last_look=(%d+) behind=(-?%d+) after_gap=([01]) rhythm=(%d+) near=(%d+) sleepers=(%d+)$'
  )
  if looked then
    local gap = now - looked
    last_look, behind, rhythm = tonumber(looked), tonumber(was_behind), tonumber(was_rhythm)
    near, sleepers = tonumber(was_near), tonumber(was_sleepers)
    if gap > rhythm / 2 then after_gap = 1 end
    if gap < 0 or after_gap == 1 and was_after_gap == '0' then behind = behind + gap end
    is_recent = gap >= 0 and gap < rhythm / 8
  end
  at = now - behind
end

local function state_note()
  return string.format(
    'last_look=%.0f behind=%.0f after_gap=%d rhythm=%.0f near=%.0f sleepers=%.0f',
    last_look, behind, after_gap, rhythm, near, sleepers
  )
end

-- Whether who came to this place is awake without being told: it lined up not long ago and shows signs of life by itself
-- until it is answered that it may sleep. Then all who came later are awake too.
local function is_awake(place)
  return place > sleepers and place <= micros and micros - place < rhythm * 1000
end

-- Whether the line moves so fast that whoever comes to its end now has its turn before it would show a second sign: its
-- head came a short time ago, to this place.
local function is_quick(head)
  return micros - head < rhythm * 1000 / 3
end

