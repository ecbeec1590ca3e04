-- Stop reading. The last reader frees the lock, and tells those who wait to write.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field
-- Reply  1 it read | 0 it did not (any more)
--
-- HDEL and DEL are allowed when memory is full, and after them everything is.

return { stop_reading(ARGV[7]) }
