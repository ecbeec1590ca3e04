-- Announce the leader, if the caller still holds the lock.
--
-- KEYS   the lock, the mark of its leader
-- ARGV   owner field, the mark, for how long it is kept in ms
-- Reply  1 written, or a later term of the same owner field has written its mark | 0 the lock is not ours any more
--
-- Mark   `<token in 20 digits> <owner field> <who leads>`

local lock, mark = KEYS[1], KEYS[2]
local field, text, keep = ARGV[1], ARGV[2], ARGV[3]
local DIGITS = 20

if redis.call('hexists', lock, field) == 0 then
  -- This changes nothing, and a replica refuses it: so "gone" always comes from a primary.
  redis.call('hdel', lock, 'parklock:nobody')
  return { 0 }
end
-- A client hands the lock from term to term under one owner field, and the request of an earlier term may arrive late.
-- The order of numbers with 20 digits is that of their texts; Lua's own numbers are not exact in that range.
local old = redis.call('get', mark)
local same = old and string.sub(old, DIGITS + 2, DIGITS + 2 + #field) == field .. ' '
if not (same and string.sub(old, 1, DIGITS) > string.sub(text, 1, DIGITS)) then
  redis.call('set', mark, text, 'px', keep)
end
return { 1 }
