-- Takes a claim back on a record that then could not be read. ARGV: id, claim → 1.
if redis.call('HGET', job, 'claim') == ARGV[2] then redis.call('HDEL', job, 'claim', 'claim_host') end
return 1
