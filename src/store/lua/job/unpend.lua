-- A job is about to be put into its queue, perhaps by several daemons at once. One that was changed since it was read is still to be put there.
-- ARGV: id, epoch seen, reason (JSON) → 1, or 0 where it is not to be.
if (redis.call('HGET', job, 'epoch') or '1') ~= ARGV[2] then return 0 end
redis.call('SREM', pending, ARGV[1])
if state ~= 'queued' then return 0 end
redis.call('HSET', job, 'reason', ARGV[3])
return 1
