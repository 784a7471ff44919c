-- ARGV: id, claim ('' for none asked), when it ends, if it does (ISO), new state ('' for the same), field, value, … → ok | missing | ended | lost | held.
if not state then return 'missing' end
if ENDED[state] then return 'ended' end
if ARGV[2] ~= '' and redis.call('HGET', job, 'claim') ~= ARGV[2] then return 'lost' end
local new = ARGV[4]
if state == 'held' and new ~= '' and new ~= 'held' and not ENDED[new] then return 'held' end
if ENDED[new] then
  close(ARGV[1], new, ARGV[3], {unpack(ARGV, 5)})
  return 'ok'
end
if #ARGV > 4 then redis.call('HSET', job, unpack(ARGV, 5)) end
if new ~= '' and new ~= state then
  redis.call('HSET', job, 'state', new)
  announce(ARGV[1], new)
end
return 'ok'
