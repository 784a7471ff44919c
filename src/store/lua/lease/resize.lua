-- ARGV: owner, instance, request (JSON: bytes, share, devices) → 1, 0 where the lease is gone, -1 where it does not fit.
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local record, req = cjson.decode(text), cjson.decode(ARGV[3])
if record.instance ~= ARGV[2] then return 0 end
local smaller = num(req.bytes) and (not num(record.bytes) or req.bytes <= record.bytes)
if not smaller then
  local held = holdings(ARGV[1])
  req.share = record.share
  for _, device in ipairs(req.devices) do
    if room(device, req, held[device.uuid], foreign(device, held, ARGV[1])) == nil then return -1 end
  end
end
redis.call('PUBLISH', wake, 'lease ' .. ARGV[1]) -- first, as in free
pay(record, now)
record.bytes = num(req.bytes)
pay(record, now + AHEAD)
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
return 1
