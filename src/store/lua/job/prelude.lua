-- The steps that change a job, each atomic. KEYS are always: job hash, jobs, live, pending, events, wake channel, and what a host's heartbeat
-- key begins with (in the same slot, by the hash tag), hosts by the time last seen, jobs that somebody is to be told of.
-- A terminal state never changes, except by RETRY; only the host that claimed a job may move it on.
local job, jobs, live, pending, events, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ENDED = {succeeded = true, failed = true, cancelled = true, exhausted = true, timeout = true}
local function text(field)
  local ok, value = pcall(cjson.decode, redis.call('HGET', job, field) or 'null')
  if ok and type(value) == 'string' then return value end
  return ''
end
-- Told before anything is written: Redis undoes nothing of a step that fails, as this does where the user may not publish
local function tell(what, id) redis.call('PUBLISH', wake, what .. ' ' .. id) end
local function announce(id, state)
  redis.call('XADD', events, 'MAXLEN', '~', 10000, '*', 'type', 'job', 'job', id, 'key', text('key'), 'state', state, 'reason', text('reason'))
end
-- What Slurm runs is put into no queue of ours
local function pend(id)
  if (redis.call('HGET', job, 'slurm') or 'null') == 'null' then redis.call('SADD', pending, id) end
end
local function close(id, state, now, fields)
  tell('ended', id)
  if fields and fields[1] then redis.call('HSET', job, unpack(fields)) end
  redis.call('HSET', job, 'state', state, 'ended_at', cjson.encode(now))
  redis.call('HDEL', job, 'claim', 'claim_host', 'cancel', 'pause')
  redis.call('ZREM', live, id)
  redis.call('SREM', pending, id)
  announce(id, state)
end
-- Looked up by the holder of this very moment: who it was when the record was read says nothing
local function alive(holder) return redis.call('EXISTS', KEYS[7] .. holder) == 1 end
-- It was heard once, and has been silent for so long. One that was never heard (Redis lost its data) is not lost
local function lost(holder, ms)
  if alive(holder) then return false end
  local seen = redis.call('ZSCORE', KEYS[8], holder)
  return seen and redis.call('TIME')[1] * 1000 - tonumber(seen) >= tonumber(ms)
end
local function launched() return (redis.call('HGET', job, 'launches') or '[]') ~= '[]' end
-- Whether this very step was done: its answer was lost with the connection, and the client has sent it again
local function sent(step) return redis.call('HGET', job, 'step') == step end
-- A key of another type, as an error; nil: there is none. Asked before a job is queued, so that it is queued whole or not at all
local function unsound()
  for at, kind in pairs({'hash', 'zset', 'zset', 'set', 'stream', [9] = 'hash'}) do
    local found = redis.call('TYPE', KEYS[at]).ok
    if found ~= 'none' and found ~= kind then return redis.error_reply('WRONGTYPE ' .. KEYS[at] .. ' is a ' .. found) end
  end
end
local state = redis.call('HGET', job, 'state')
