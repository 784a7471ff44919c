-- A host is forgotten: its job is given to others, or ends. The higher epoch tells the host, should it come back, to end its copy.
-- ARGV: id, host, epoch seen, new state, now, field, value, … → ok | alive | no.
if not state or ENDED[state] or redis.call('HGET', job, 'claim_host') ~= ARGV[2] or redis.call('HGET', job, 'epoch') ~= ARGV[3] then return 'no' end
if alive(ARGV[2]) then return 'alive' end
if ENDED[ARGV[4]] then
  close(ARGV[1], ARGV[4], ARGV[5], {unpack(ARGV, 6)})
  redis.call('HINCRBY', job, 'epoch', 1)
  return 'ok'
end
tell('submit', ARGV[1])
if #ARGV > 5 then redis.call('HSET', job, unpack(ARGV, 6)) end
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('HSET', job, 'state', 'queued', 'host', 'null')
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
pend(ARGV[1])
announce(ARGV[1], 'queued')
return 'ok'
