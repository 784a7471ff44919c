-- Moves what is no hash out of the way of a job's record. KEYS: job hash, where to. → 1, or 0 where it is one, or nothing.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' or kind == 'none' then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
