-- ARGV: owner, instance ('' any), text seen ('' any: else only while it is unchanged) → 1 or 0.
redis.call('HDEL', queue, ARGV[1])
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
if ARGV[3] ~= '' and text ~= ARGV[3] then return 0 end
local ok, record = pcall(cjson.decode, text)
if ok and ARGV[2] ~= '' and record.instance ~= ARGV[2] then return 0 end
if ok and type(record.devices) == 'table' then pay(record, now) end
redis.call('HDEL', leases, ARGV[1])
if ok and type(record.devices) == 'table' then
  record.owner = ARGV[1]
  announce(record, 'freed')
end
redis.call('PUBLISH', wake, 'lease ' .. ARGV[1])
return 1
