-- Report how long the claimed interval still lasts.
--
-- KEYS   the mark of the interval
-- Reply  ms | 0 it is over, or nobody has claimed one. A replica may report this too early: only the claim counts

return { math.max(redis.call('pttl', KEYS[1]), 0) }
