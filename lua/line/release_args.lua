-- The arguments and replies of the scripts that release locks other than plain ones, or leave their lines. release.lua does the
-- work.
--
-- KEYS   the token counter, then for each lock: the holders, the line, the notes
-- ARGV   four words with blanks between them: see release_terms.lua
--        for each lock: its kind and its capacity, with a blank between them; owner field
--        if it is one lock, perhaps: the owner fields of the callers to which the client has handed this hold on. They still stand
--        in line, and have had their turns. At most BOUND of them
-- Reply  for each lock: 1 the hold was released | 0 there was no hold (any more) | -2, -1: the same, and the line is not done:
--        the client has to release once more. Or a text: refused, nothing was changed. For one lock, the
--        uncontended path and release_to_head.lua answer the number alone
--
-- Redis allows ZREM when its memory is full, and then every write of this script.

local is_plain, locks = false, (#KEYS - 1) / 3
local given_back = {} -- the answers so far
local left = {} -- 1: the hold is released, 0: there was none
