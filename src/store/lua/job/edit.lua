-- Changes the options of a job that was not launched, if they are as they were read; one that waits is queued anew by them.
-- ARGV: id, options as read (JSON), options (JSON), reason (JSON) → ok | changed | the state that forbids it.
if not state then return 'missing' end
if state ~= 'held' and (state ~= 'queued' or launched()) then return state end
if redis.call('HGET', job, 'options') ~= ARGV[2] then return 'changed' end
if state == 'queued' then
  tell('hold', ARGV[1])
  tell('release', ARGV[1])
end
redis.call('HSET', job, 'options', ARGV[3])
if state == 'queued' then
  redis.call('HSET', job, 'reason', ARGV[4], 'host', 'null')
  redis.call('HDEL', job, 'claim', 'claim_host')
  redis.call('HINCRBY', job, 'epoch', 1)
  pend(ARGV[1])
end
return 'ok'
