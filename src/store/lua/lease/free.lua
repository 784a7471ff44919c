-- ARGV: owner, instance ('' any), text seen ('' any: else only while it is unchanged) → 1 or 0.
local text = redis.call('HGET', leases, ARGV[1])
local ok, record = pcall(cjson.decode, text or '')
local kept = not text or (ARGV[3] ~= '' and text ~= ARGV[3]) or (ok and ARGV[2] ~= '' and record.instance ~= ARGV[2])
-- Told before anything is written: Redis undoes nothing of a step that fails, as this does where the user may not publish
if not kept then redis.call('PUBLISH', wake, 'lease ' .. ARGV[1]) end
redis.call('HDEL', queue, ARGV[1])
if kept then return 0 end
if ok and type(record.devices) == 'table' then pay(record, now) end
redis.call('HDEL', leases, ARGV[1])
if ok and type(record.devices) == 'table' then
  record.owner = ARGV[1]
  announce(record, 'freed')
end
return 1
