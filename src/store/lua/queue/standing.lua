-- KEYS: prioritized, wait, active. ARGV: ids of entries → those that stand in one of them. That an entry's own hash is there
-- says nothing: Redis may refuse a script of BullMQ's after it wrote that.
local found = {}
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', KEYS[1], id) or redis.call('LPOS', KEYS[2], id) or redis.call('LPOS', KEYS[3], id) then
    found[#found + 1] = id
  end
end
return found
