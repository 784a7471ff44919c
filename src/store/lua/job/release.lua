-- ARGV: id, reason (JSON) → queued | the state that forbids it.
if not state then return 'missing' end
if state ~= 'held' then return state end
tell('release', ARGV[1])
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[2])
redis.call('HINCRBY', job, 'epoch', 1)
pend(ARGV[1])
announce(ARGV[1], 'queued')
return 'queued'
