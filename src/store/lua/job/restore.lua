-- Writes back what a host holds, where Redis has lost it: its record is gone, or stands as it was before. A higher epoch was
-- given since to run the job elsewhere, and a claim under which something was launched stands: then the host has lost it.
-- ARGV: id, host, claim, epoch, launches, ms, field, value, … → kept | restored | fenced | ended | lost.
local epoch, launches = tonumber(ARGV[4]), tonumber(ARGV[5])
if state then
  local known = tonumber(redis.call('HGET', job, 'epoch') or '1') or 1
  if known > epoch then return 'fenced' end
  if known == epoch then
    if ENDED[state] then return 'ended' end
    local claim = redis.call('HGET', job, 'claim')
    if claim == ARGV[3] and redis.call('HGET', job, 'claim_host') == ARGV[2] then
      local ok, list = pcall(cjson.decode, redis.call('HGET', job, 'launches') or '[]')
      if ok and type(list) == 'table' and #list >= launches then return 'kept' end
    else
      if claim and launched() then return 'lost' end
      if launches == 0 and (claim or state == 'held') then return 'lost' end
    end
  end
end
redis.call('HSET', job, 'epoch', ARGV[4], 'claim', ARGV[3], 'claim_host', ARGV[2], unpack(ARGV, 7))
redis.call('ZADD', jobs, ARGV[6], ARGV[1])
redis.call('ZADD', live, ARGV[6], ARGV[1])
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
return 'restored'
