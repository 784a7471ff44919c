-- Puts a job back that was claimed and not launched. ARGV: id, claim, reason (JSON), now → ok | lost | launched | ended (it was cancelled meanwhile).
if redis.call('HGET', job, 'claim') ~= ARGV[2] then return 'lost' end
if launched() then return 'launched' end
if redis.call('HGET', job, 'cancel') then
  close(ARGV[1], 'cancelled', ARGV[4])
  return 'ended'
end
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[3], 'host', 'null')
return 'ok'
