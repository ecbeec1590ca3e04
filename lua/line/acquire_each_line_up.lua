-- The usual case of those of several requests that the uncontended path has not answered: see acquire_line_up.lua. acquire_each.lua
-- continues from here with those that are left.
are_all_done = true
local is_left = {} -- the holders' keys of those: a later request for one of them does not overtake
for i = 1, locks do
  local lock, wish = KEYS[3 * i - 1], wish_of(ARGV[3 * i + 1])
  local is_usual = wish.capacity == 1 and wish.part == 1 and wish.manner == 'wait'
  if not answers[i] and is_usual and not is_left[lock] then
    ahead = nil
    local fine, answer = pcall(
      line_up_as_usual, lock, KEYS[3 * i], KEYS[3 * i + 1], wish.kind, ARGV[3 * i], wish.lease_text, waiter_ttl_text, line_ttl_text,
      publisher, ARGV[3 * i + 2], channels .. lock:match('{.*')
    )
    answers[i] = fine and answer
  end
  if not answers[i] then are_all_done, is_left[lock] = false, true end
end
if are_all_done then return answers end

