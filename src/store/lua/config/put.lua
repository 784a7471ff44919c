-- Record, index and event in one step: a reader never sees half a configuration.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[3], '*', 'type', 'config', 'key', ARGV[1], 'job', ARGV[4], 'status', redis.call('HGET', KEYS[1], 'status'))
return 1
