-- Say for how long the interval still lasts that somebody has claimed.
--
-- KEYS   the mark of the interval
-- Reply  ms | 0 it is over, or nobody has claimed one. A replica may say so too early: to claim is what counts

return { math.max(redis.call('pttl', KEYS[1]), 0) }
