-- Wake a waiter that had a place and is no longer in line. Possible reasons: notify_all has removed it; it was removed
-- because it was silent for too long; the server has lost the line; or an answer was lost and it has a new owner field.
-- Only in the first case was it certainly notified; in the others it may have missed a notification. It never holds a
-- notification here, so it keeps none from another waiter. For any other caller acquire.lua continues from here.

if had > 0 and not holds(field) and not redis.call('zscore', line, field) then
  check_writable(false)
  admit()
  local number, err = draw(1)
  if not number then
    settle() -- admit() may have given a notification to nobody yet
    return redis.error_reply(err)
  end
  redis.call('zadd', lock, string.format('%.0f', now + lease), field, -1, note_of(field))
  return { GRANTED, number, settle() and 1 or 0 }
end

