-- ARGV: id, reason (JSON) → held | the state that forbids it.
if not state then return 'missing' end
if state == 'held' then return 'held' end
if state ~= 'queued' or launched() then return state end
tell('hold', ARGV[1])
redis.call('HSET', job, 'state', 'held', 'reason', ARGV[2], 'host', 'null')
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], 'held')
return 'held'
