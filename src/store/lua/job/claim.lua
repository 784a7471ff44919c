-- ARGV: id, host, claim, epoch, now, newest schema that can be read → {claimed | ours, field, value, …} or {missing | unreadable | ended | held | stale | away}.
if not state then return {'missing'} end
if (tonumber(redis.call('HGET', job, 'schema') or '') or 0) > tonumber(ARGV[6]) then return {'unreadable'} end
if ENDED[state] then return {'ended'} end
if state == 'held' then return {'held'} end
if redis.call('HGET', job, 'epoch') ~= ARGV[4] then return {'stale'} end
local holder = redis.call('HGET', job, 'claim_host')
if holder and holder ~= ARGV[2] then
  if launched() or alive(holder) then return {'away'} end
  if redis.call('HGET', job, 'cancel') then
    close(ARGV[1], 'cancelled', ARGV[5])
    return {'ended'}
  end
end
redis.call('HSET', job, 'claim_host', ARGV[2], 'claim', ARGV[3], 'host', cjson.encode(ARGV[2]))
if not launched() then redis.call('HSET', job, 'reason', '"starting"') end
local record = redis.call('HGETALL', job)
table.insert(record, 1, holder == ARGV[2] and 'ours' or 'claimed')
return record
