-- Not written yet.
--
-- KEYS   -
-- Reply  -

return redis.error_reply('ERR not written yet')
