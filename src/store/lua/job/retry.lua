-- Also runs the job of a lost host elsewhere: the higher epoch tells the host, should it come back, to end its copy.
-- ARGV: id, silence of a lost host (ms), what is owed to whom its options tell of it ('' nothing), step (JSON), field, value, … (what starts anew) → queued | the state that forbids it (`waiting` for queued).
if not state then return 'missing' end
if sent(ARGV[4]) then return 'queued' end
local holder = redis.call('HGET', job, 'claim_host')
local given = not ENDED[state] and state ~= 'held' and holder and launched() and lost(holder, ARGV[2])
if state == 'queued' and not given then return 'waiting' end
if not ENDED[state] and not given then return state end
local wrong = unsound()
if wrong then return wrong end
tell('submit', ARGV[1])
local ok, options = pcall(cjson.decode, redis.call('HGET', job, 'options') or 'null')
if ARGV[3] ~= '' and ok and type(options) == 'table' and options.notify == true then redis.call('HSET', KEYS[9], ARGV[1], ARGV[3]) end
redis.call('HSET', job, 'state', 'queued', 'step', ARGV[4], unpack(ARGV, 5))
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('ZADD', live, redis.call('ZSCORE', jobs, ARGV[1]) or 0, ARGV[1])
pend(ARGV[1])
announce(ARGV[1], 'queued')
return 'queued'
