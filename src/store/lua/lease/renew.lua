-- ARGV: owner, instance, ttl ms → 1, or 0 where the lease is gone or another's.
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local ok, record = pcall(cjson.decode, text)
if not ok or record.instance ~= ARGV[2] then return 0 end
record.expires_at = now + tonumber(ARGV[3])
pay(record, now + AHEAD)
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
return 1
