-- ARGV: id, on or off (JSON) → ok | the state that forbids it.
if not state then return 'missing' end
-- A job that was paused as it ran out of memory is searched for before it stands still.
if state ~= 'running' and not (state == 'searching' and ARGV[2] == '"off"') then return state end
tell('pause', ARGV[1])
redis.call('HSET', job, 'pause', ARGV[2])
return 'ok'
