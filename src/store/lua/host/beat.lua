local known = redis.call('GET', KEYS[1])
if known then
  local ok, info = pcall(cjson.decode, known)
  if ok and type(info) == 'table' and info.instance ~= ARGV[2] then return known end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
local t = redis.call('TIME')
redis.call('ZADD', KEYS[2], t[1] * 1000, ARGV[4])
return false
