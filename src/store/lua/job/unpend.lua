-- A job is about to be put into its queue, perhaps by several daemons at once. ARGV: id, reason (JSON) → 1, or 0 where it is not to be.
redis.call('SREM', pending, ARGV[1])
if state ~= 'queued' then return 0 end
redis.call('HSET', job, 'reason', ARGV[2])
return 1
