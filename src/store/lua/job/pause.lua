-- ARGV: id, on or off (JSON) → ok | the state that forbids it.
if not state then return 'missing' end
if state ~= 'running' then return state end
redis.call('HSET', job, 'pause', ARGV[2])
redis.call('PUBLISH', wake, 'pause ' .. ARGV[1])
return 'ok'
