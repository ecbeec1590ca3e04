-- The clock by which those who wait are judged. It stands still when the server does.

local BOUND = 64 -- so many items of work there are in one call at the most
local WINDOW = 4 -- so many at the front of a line show signs of life

local micros, now -- the server's clock
local at -- the clock of those who wait, in ms: it is this far behind the server's
local behind, after_gap, rhythm

-- In a stall nobody can give a sign of life, and the first script after it may run before those that wait in the
-- sockets: it must put out nobody. Whoever is near the front comes three times per waiter_ttl, so that a gap of more
-- than half of that between two scripts is a stall, and the clock leaves it out. After a second gap in a row it is not:
-- nobody comes, or one who is far away, and the dead must not live on between the scripts. It also leaves out a step
-- back of the server's clock. The note says when the last script ran, how far the clock was behind then, whether that
-- script came after a gap, and the waiter_ttl of who gave the last sign: clients may differ in that, and whoever runs
-- this need not wait at all.
local function read_clock(note, waiter_ttl)
  local time = redis.call('time')
  micros = time[1] * 1000000 + time[2]
  now = math.floor(micros / 1000)
  behind, after_gap, rhythm = 0, 0, waiter_ttl
  local ran, was_behind, was_after_gap, was_rhythm = (note or ''):match('^(%d+) (-?%d+) ([01]) (%d+)$')
  if ran then
    local gap = now - ran
    behind, rhythm = tonumber(was_behind), tonumber(was_rhythm)
    if gap > rhythm / 2 then after_gap = 1 end
    if gap < 0 or after_gap == 1 and was_after_gap == '0' then behind = behind + gap end
  end
  at = now - behind
end

local function clock_note()
  return string.format('%.0f %.0f %d %.0f', now, behind, after_gap, rhythm)
end

