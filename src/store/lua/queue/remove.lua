-- Removes a queue that holds nothing. KEYS: labels, the lists that hold its entries, its other keys. ARGV: label, how many lists
-- → 1, or 0 where something stands in one.
local last = 1 + tonumber(ARGV[2])
for at = 2, last do
  if redis.call('EXISTS', KEYS[at]) == 1 then return 0 end
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('DEL', unpack(KEYS, last + 1))
return 1
