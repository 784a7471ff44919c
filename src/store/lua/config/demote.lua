if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local known = tonumber(redis.call('HGET', KEYS[1], 'known_bad_micro_batch') or '')
local bad = tonumber(ARGV[2])
if known and known < bad then bad = known end
redis.call('HSET', KEYS[1], 'status', 'demoted', 'known_bad_micro_batch', string.format('%d', bad))
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'type', 'config', 'key', ARGV[1], 'job', ARGV[4], 'status', 'demoted')
return 1
