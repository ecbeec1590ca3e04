-- The clock by which line.lua judges which waiters are alive. It stops while the server stalls.

local BOUND = 64 -- the most items of work that one call does
local WINDOW = 4 -- how many waiters at the front of a line show signs of life
-- How many items of work a call does for each of its locks. Each lock has three keys, beside the counter.
local SHARE = math.max(WINDOW, math.floor(BOUND / math.floor((#KEYS - 1) / 3)))
-- A grant by message ends with the sign of life that it was made for. A waiter with no more than this left of its sign,
-- in ms, might receive its grant too late: it has to show a new sign first. This is a quarter of the shortest
-- waiter_ttl.
local LEAST_LIFE = 12

local micros, now -- the server's clock
local at -- the clock of the waiters, in ms
local behind, resumed, rhythm -- how far `at` is behind the server's clock, in ms; see read_state()
local near, sleepers, sentry -- see line.lua
local last_look -- when a script last looked at the front, in ms
-- Whether that was only a moment ago. Then a sign of life or a newcomer need not look, and a release need not note that
-- it looked.
local is_recent

-- The note that the functions below read and write records when a script last looked at the front, how far the clock was
-- behind then, the time of the clock after the last stall, the waiter_ttl of the client that showed the last sign, and three
-- places (see line.lua). It records that waiter_ttl because clients may have different ones, and the client that runs this script may
-- not be a waiter. The note is packed: reading it as a text would cost the server ten times as much. With its label it is
-- longer than 64 bytes: so Redis stores the notes as a hash table. In a short hash each lookup would scan all of it.
local PACKED, LABEL, PACKED_LENGTH = '<c24ddddddd', 'The state of this line: ', 80

-- While the server stalls, no client can show a sign of life. The first script after such a stall may run before the
-- signs that still wait in the sockets, so it must remove nobody. Clients near the front show three signs per
-- waiter_ttl. So a gap of more than half a waiter_ttl between two scripts is a stall, and the clock leaves it out. But the
-- server may be fine, and only the clients near the front do not call. Then dead waiters must age, even if all far clients
-- call at one moment, again and again. So the clock leaves out a gap only if it has run for a whole waiter_ttl since the
-- last one. The clock also leaves out a backward step of the server's clock.
local function read_state(note, waiter_ttl)
  local time = redis.call('time')
  micros = time[1] * 1000000 + time[2]
  now = math.floor(micros / 1000)
  behind, resumed, rhythm, near, sleepers, sentry, is_recent = 0, 0, waiter_ttl, 0, 0, 0, false
  last_look = now
  if note and #note == PACKED_LENGTH and note:sub(1, #LABEL) == LABEL then
    local _
    _, last_look, behind, resumed, rhythm, near, sleepers, sentry = struct.unpack(PACKED, note)
    local gap, looked_at = now - last_look, last_look - behind
    if gap < 0 or gap > rhythm / 2 and looked_at - resumed >= rhythm then
      behind, resumed = behind + gap, looked_at
    end
    is_recent = gap >= 0 and gap < rhythm / 8
  end
  at = now - behind
end

local function state_note()
  return struct.pack(PACKED, LABEL, last_look, behind, resumed, rhythm, near, sleepers, sentry)
end

-- Whether the waiter at this place is awake without a message: it lined up less than one waiter_ttl ago, and its client
-- shows a sign of life by itself within a third of that time, for all of its waiters. If it is awake, all waiters behind
-- it are awake too.
local function is_awake(place)
  return place > sleepers and place <= micros and micros - place < rhythm * 1000
end

-- Whether the waiter at this place was told to show signs of life.
local function is_near(place)
  return place <= near or place == sentry
end

