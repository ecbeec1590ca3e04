-- What two kinds of sorted sets share: the set of holders (zset.lua), and the set of the notified waiters of a
-- condition (lua/condition/notified.lua). The score of an owner field is when it expires, in ms of the server's clock,
-- which alone decides what has expired.

local UNUSED = 4503599627370496 -- 2^52: the score of the first member is this much below what is in use

local lock, line, notes, channel
local kind, capacity, is_set = ARGV[2], tonumber(ARGV[3]), false
local used -- how much of the capacity is in use
local said -- the member with the kind and the capacity, if there is one
local lock_is_new -- the key did not exist when the script began
local is_foreign -- another program has written the key: it counts as held, and its members are left alone

-- Two writes that change nothing; a replica refuses both. The first needs memory: so a newcomer is refused if the
-- memory is full. The second needs none, and after it Redis allows every write: so holders and waiters can continue.
local function check_writable(is_newcomer)
  if is_newcomer then
    redis.call('zadd', lock, 'XX', '0', 'parklock:nobody')
  else
    redis.call('zrem', lock, 'parklock:nobody')
  end
end

-- For how much longer this owner holds it, in ms. Nil or false if it does not. The second result: whether its hold is
-- over, but no script has removed it yet.
local function holds(field)
  local until_when = tonumber(redis.call('zscore', lock, field) or nil)
  local is_over = until_when and until_when <= now
  return until_when and not is_over and until_when - now, is_over
end

-- The member that stores additional information about a field.
local function note_of(field)
  return '=' .. field
end

-- Extends a hold to this long from now. The caller never passes less than the holder has left.
local function prolong(field, ms)
  redis.call('zadd', lock, 'XX', string.format('%.0f', now + ms), field)
end

-- A client keeps no idle hold of these kinds.
local KEPT, WAITS, TRIES
local function tell_keeper() end

