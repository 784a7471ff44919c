-- Also runs the job of a lost host elsewhere: the higher epoch tells the host, should it come back, to end its copy.
-- ARGV: id, silence of a lost host (ms), field, value, … (what starts anew) → queued | the state that forbids it (`waiting` for queued).
if not state then return 'missing' end
local holder = redis.call('HGET', job, 'claim_host')
local given = not ENDED[state] and state ~= 'held' and holder and launched() and lost(holder, ARGV[2])
if state == 'queued' and not given then return 'waiting' end
if not ENDED[state] and not given then return state end
tell('submit', ARGV[1])
redis.call('HSET', job, 'state', 'queued', unpack(ARGV, 3))
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('ZADD', live, redis.call('ZSCORE', jobs, ARGV[1]) or 0, ARGV[1])
pend(ARGV[1])
announce(ARGV[1], 'queued')
return 'queued'
