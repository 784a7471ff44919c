-- ARGV: owner, instance, supervisor (JSON) → 1 or 0.
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local record = cjson.decode(text)
if record.instance ~= ARGV[2] then return 0 end
if type(record.supervisors) ~= 'table' then record.supervisors = {} end
record.supervisors[#record.supervisors + 1] = cjson.decode(ARGV[3])
while #record.supervisors > 4 do table.remove(record.supervisors, 1) end
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
return 1
