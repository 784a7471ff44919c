-- ARGV: id, ms, field, value, … → 1, or 0 where the id is taken.
if redis.call('EXISTS', job) == 1 then return 0 end
redis.call('HSET', job, 'epoch', 1, unpack(ARGV, 3))
redis.call('ZADD', jobs, ARGV[2], ARGV[1])
redis.call('ZADD', live, ARGV[2], ARGV[1])
redis.call('SADD', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
redis.call('PUBLISH', wake, 'submit ' .. ARGV[1])
return 1
