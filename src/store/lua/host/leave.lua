local ok, info = pcall(cjson.decode, redis.call('GET', KEYS[1]) or '')
if ok and type(info) == 'table' and info.instance == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
