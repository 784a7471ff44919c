-- ARGV: id, now, reason (JSON), silence of a lost host (ms) → the state that it found, or cancelled where that was done at once.
if not state then return 'missing' end
if ENDED[state] then return state end
local holder = redis.call('HGET', job, 'claim_host')
if not holder or (not launched() and not alive(holder)) or lost(holder, ARGV[4]) then
  close(ARGV[1], 'cancelled', ARGV[2], {'reason', 'null'})
  return 'cancelled'
end
tell('cancel', ARGV[1])
redis.call('HSETNX', job, 'cancel', ARGV[2])
redis.call('HSET', job, 'reason', ARGV[3])
return state
