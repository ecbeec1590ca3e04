-- Leave, as a holder or from the line, and let in whoever may now.
--
-- KEYS   see head.lua
-- ARGV   ..., owner field
-- Reply  alone or in a table: 1 it held, and left | 0 it did not hold (any more)
--
-- ZREM is allowed when memory is full, and after it everything is.

local field = ARGV[7]
check_writable()
local was_empty = nobody_is_left()
local left = put_out(field)
if not left and stands(field) then leave(read({ field })[1]) end
pcall(admit)
settle()
-- It went without a release, and perhaps the line with it. Then nobody has told those who waited.
if was_empty then redis.pcall('publish', channel, from) end
return { left and 1 or 0 }
