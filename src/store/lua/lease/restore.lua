-- ARGV: ttl ms, promises (JSON) → how many were lost.
return restore(cjson.decode(ARGV[2]), tonumber(ARGV[1]))
