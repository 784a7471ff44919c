-- ARGV: id, ms, owner (JSON), how many of the owner's jobs may wait ('' any number), what is owed to whom is to be told ('' nobody), step (JSON), field, value, …
-- → 1; 0 where the id is taken; -1 where so many wait already.
if state and sent(ARGV[6]) then return 1 end
if redis.call('EXISTS', job) == 1 then return 0 end
local wrong = unsound()
if wrong then return wrong end
if ARGV[4] ~= '' then
  local waiting, stem = 0, string.sub(job, 1, #job - #ARGV[1])
  for _, id in ipairs(redis.call('ZRANGE', live, 0, -1)) do
    local ok, found = pcall(redis.call, 'HMGET', stem .. id, 'state', 'owner', 'slurm')
    if ok and (found[1] == 'queued' or found[1] == 'held') and found[2] == ARGV[3] and (found[3] or 'null') == 'null' then waiting = waiting + 1 end
  end
  if waiting >= tonumber(ARGV[4]) then return -1 end
end
tell('submit', ARGV[1])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[9], ARGV[1], ARGV[5]) end
redis.call('HSET', job, 'epoch', 1, 'step', ARGV[6], unpack(ARGV, 7))
redis.call('ZADD', jobs, ARGV[2], ARGV[1])
redis.call('ZADD', live, ARGV[2], ARGV[1])
pend(ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
return 1
