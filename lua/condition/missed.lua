-- A waiter that had a place and is not in line any more is woken. notify_all has taken it out, or it was put out because it was
-- silent for too long, or the server has lost the line, or an answer was lost and it comes under a new owner field. Only in the
-- first case it was notified for certain; in the others it may have missed a notification. It holds no notification that others
-- could wait for. In every other case acquire.lua goes on from here.

if had > 0 and not holds(field) and not redis.call('zscore', line, field) then
  check_writable(false)
  admit()
  local number, err = draw(1)
  if not number then return redis.error_reply(err) end
  redis.call('zadd', lock, string.format('%.0f', now + lease), field, -1, note_of(field))
  return { GRANTED, number, settle() and 1 or 0 }
end

