-- The word that tells a client that it was granted the lock. The client has given its secret to the server alone: whoever hears the
-- message learns when the secret was made, and a hash that counts for this owner field and this grant alone. The hash is cut: so
-- nobody can go on from it to the hash of a longer text. The client's half is src/wire/proof.rs.
local function grant_word(field, number, secret)
  local word = string.format('%s=%.0f', field, number)
  return word .. '@' .. secret:sub(-8) .. redis.sha1hex(secret .. ' ' .. word):sub(1, 20)
end

