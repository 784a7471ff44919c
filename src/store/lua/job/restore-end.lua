-- Writes back how a job ended, where an older state of Redis offers it to be run. What Redis knows nothing of stays lost.
-- ARGV: id, epoch, field, value, … → kept | restored | fenced | missing.
if not state then return 'missing' end
local known, epoch = tonumber(redis.call('HGET', job, 'epoch') or '1') or 1, tonumber(ARGV[2])
if known > epoch then return 'fenced' end
if known == epoch and ENDED[state] then return 'kept' end
tell('ended', ARGV[1])
redis.call('HSET', job, 'epoch', ARGV[2], unpack(ARGV, 3))
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('ZREM', live, ARGV[1])
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
return 'restored'
