-- Those of several requests that the uncontended path has not answered, each as acquire.lua answers one.

from, waiter_ttl = publisher, tonumber(waiter_ttl_text)

local function answer(i)
  local wish = wish_of(ARGV[3 * i + 1])
  lock, line, notes = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  field, secret, lease, part, manner = ARGV[3 * i], ARGV[3 * i + 2], wish.lease, wish.part, wish.manner
  channel, kind, capacity = channels .. lock:match('{.*'), wish.kind, wish.capacity
  others_set, ahead, asker, asks_again, relies_on_asker = false, nil, nil, nil, nil
  local refused = settle_kind()
  if refused then return nil, refused end
  return acquire(wish.capacity)
end

-- An error of one lock is reported for that lock alone.
for i = 1, locks do
  if not answers[i] then
    local fine, answered, refused = pcall(answer, i)
    if not fine then answered, refused = nil, type(answered) == 'table' and answered.err or tostring(answered) end
    answers[i] = answered or { REFUSED, refused }
  end
end
return answers
