-- Queues a job anew whose queue entry is lost. ARGV: id, epoch seen, reason (JSON) → ok | no.
if not state or ENDED[state] or state == 'held' or redis.call('HGET', job, 'epoch') ~= ARGV[2] then return 'no' end
local holder = redis.call('HGET', job, 'claim_host')
if holder and alive(holder) then return 'no' end
if launched() then return 'no' end
tell('submit', ARGV[1])
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[3], 'host', 'null')
redis.call('HINCRBY', job, 'epoch', 1)
pend(ARGV[1])
return 'ok'
