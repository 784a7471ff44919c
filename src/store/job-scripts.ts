import { JOB_SCHEMA } from './schemas.js';
import { Script } from './script.js';

/**
 * The steps that change a job, each atomic. KEYS are always: job hash, jobs, live, pending, events, wake channel, and what a host's heartbeat
 * key begins with (in the same slot, by the hash tag), hosts by the time last seen.
 * A terminal state never changes, except by RETRY; only the host that claimed a job may move it on.
 */
const PRELUDE = `
local job, jobs, live, pending, events, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ENDED = {succeeded = true, failed = true, cancelled = true, exhausted = true, timeout = true}
local function text(field)
  local ok, value = pcall(cjson.decode, redis.call('HGET', job, field) or 'null')
  if ok and type(value) == 'string' then return value end
  return ''
end
local function announce(id, state)
  redis.call('XADD', events, 'MAXLEN', '~', 10000, '*', 'type', 'job', 'job', id, 'key', text('key'), 'state', state, 'reason', text('reason'))
end
local function close(id, state, now)
  redis.call('HSET', job, 'state', state, 'ended_at', cjson.encode(now))
  redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
  redis.call('ZREM', live, id)
  redis.call('SREM', pending, id)
  announce(id, state)
  redis.call('PUBLISH', wake, 'ended ' .. id)
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
local state = redis.call('HGET', job, 'state')
`;

const script = (lua: string): Script => new Script(PRELUDE + lua);

/** Moves what is no hash out of the way of a job's record. KEYS: job hash, where to. → 1, or 0 where it is one, or nothing. */
export const MOVE_ASIDE = new Script(`
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' or kind == 'none' then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1`);

/** An index names a job that there is no record of. KEYS: job hash, live, pending. ARGV: id. */
export const DROP_MISSING = new Script(`
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('SREM', KEYS[3], ARGV[1])
return 1`);

/** ARGV: id, ms, field, value, … → 1, or 0 where the id is taken. */
export const CREATE = script(`
if redis.call('EXISTS', job) == 1 then return 0 end
redis.call('HSET', job, 'epoch', 1, unpack(ARGV, 3))
redis.call('ZADD', jobs, ARGV[2], ARGV[1])
redis.call('ZADD', live, ARGV[2], ARGV[1])
redis.call('SADD', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
redis.call('PUBLISH', wake, 'submit ' .. ARGV[1])
return 1`);

/** ARGV: id, claim ('' for none asked), now (ISO), new state ('' for the same), field, value, … → ok | missing | ended | lost | held. */
export const PATCH = script(`
if not state then return 'missing' end
if ENDED[state] then return 'ended' end
if ARGV[2] ~= '' and redis.call('HGET', job, 'claim') ~= ARGV[2] then return 'lost' end
local new = ARGV[4]
if state == 'held' and new ~= '' and new ~= 'held' and not ENDED[new] then return 'held' end
if #ARGV > 4 then redis.call('HSET', job, unpack(ARGV, 5)) end
if new ~= '' and new ~= state then
  if ENDED[new] then close(ARGV[1], new, ARGV[3])
  else
    redis.call('HSET', job, 'state', new)
    announce(ARGV[1], new)
  end
end
return 'ok'`);

/** ARGV: id, host, claim, epoch, now → {claimed | ours, field, value, …} or {missing | unreadable | ended | held | stale | away}. */
export const CLAIM = script(`
if not state then return {'missing'} end
if (tonumber(redis.call('HGET', job, 'schema') or '') or 0) > ${JOB_SCHEMA} then return {'unreadable'} end
if ENDED[state] then return {'ended'} end
if state == 'held' then return {'held'} end
if redis.call('HGET', job, 'epoch') ~= ARGV[4] then return {'stale'} end
local holder = redis.call('HGET', job, 'claim_host')
if holder and holder ~= ARGV[2] then
  if launched() or alive(holder) then return {'away'} end
  if redis.call('HGET', job, 'cancel') then
    close(ARGV[1], 'cancelled', ARGV[5])
    return {'ended'}
  end
end
redis.call('HSET', job, 'claim_host', ARGV[2], 'claim', ARGV[3], 'host', cjson.encode(ARGV[2]))
if not launched() then redis.call('HSET', job, 'reason', '"starting"') end
local record = redis.call('HGETALL', job)
table.insert(record, 1, holder == ARGV[2] and 'ours' or 'claimed')
return record`);

/**
 * Writes back what a host holds, where Redis has lost it: its record is gone, or stands as it was before. A higher epoch was
 * given since to run the job elsewhere, and a claim under which something was launched stands: then the host has lost it.
 * ARGV: id, host, claim, epoch, launches, ms, field, value, … → kept | restored | fenced | ended | lost.
 */
export const RESTORE = script(`
local epoch, launches = tonumber(ARGV[4]), tonumber(ARGV[5])
if state then
  local known = tonumber(redis.call('HGET', job, 'epoch') or '1') or 1
  if known > epoch then return 'fenced' end
  if known == epoch then
    if ENDED[state] then return 'ended' end
    local claim = redis.call('HGET', job, 'claim')
    if claim == ARGV[3] and redis.call('HGET', job, 'claim_host') == ARGV[2] then
      local ok, list = pcall(cjson.decode, redis.call('HGET', job, 'launches') or '[]')
      if ok and type(list) == 'table' and #list >= launches then return 'kept' end
    else
      if claim and launched() then return 'lost' end
      if launches == 0 and (claim or state == 'held') then return 'lost' end
    end
  end
end
redis.call('HSET', job, 'epoch', ARGV[4], 'claim', ARGV[3], 'claim_host', ARGV[2], unpack(ARGV, 7))
redis.call('ZADD', jobs, ARGV[6], ARGV[1])
redis.call('ZADD', live, ARGV[6], ARGV[1])
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
return 'restored'`);

/**
 * Writes back how a job ended, where an older state of Redis offers it to be run. What Redis knows nothing of stays lost.
 * ARGV: id, epoch, field, value, … → kept | restored | fenced | missing.
 */
export const RESTORE_END = script(`
if not state then return 'missing' end
local known, epoch = tonumber(redis.call('HGET', job, 'epoch') or '1') or 1, tonumber(ARGV[2])
if known > epoch then return 'fenced' end
if known == epoch and ENDED[state] then return 'kept' end
redis.call('HSET', job, 'epoch', ARGV[2], unpack(ARGV, 3))
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('ZREM', live, ARGV[1])
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], redis.call('HGET', job, 'state'))
redis.call('PUBLISH', wake, 'ended ' .. ARGV[1])
return 'restored'`);

/** Takes a claim back on a record that then could not be read. ARGV: id, claim → 1. */
export const UNDO_CLAIM = script(`
if redis.call('HGET', job, 'claim') == ARGV[2] then redis.call('HDEL', job, 'claim', 'claim_host') end
return 1`);

/** A job is about to be put into its queue, perhaps by several daemons at once. ARGV: id, reason (JSON) → 1, or 0 where it is not to be. */
export const UNPEND = script(`
redis.call('SREM', pending, ARGV[1])
if state ~= 'queued' then return 0 end
redis.call('HSET', job, 'reason', ARGV[2])
return 1`);

/** Puts a job back that was claimed and not launched. ARGV: id, claim, reason (JSON), now → ok | lost | launched | ended (it was cancelled meanwhile). */
export const UNCLAIM = script(`
if redis.call('HGET', job, 'claim') ~= ARGV[2] then return 'lost' end
if launched() then return 'launched' end
if redis.call('HGET', job, 'cancel') then
  close(ARGV[1], 'cancelled', ARGV[4])
  return 'ended'
end
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[3], 'host', 'null')
return 'ok'`);

/** ARGV: id, now, reason (JSON), silence of a lost host (ms) → the state that it found, or cancelled where that was done at once. */
export const CANCEL = script(`
if not state then return 'missing' end
if ENDED[state] then return state end
local holder = redis.call('HGET', job, 'claim_host')
if not holder or (not launched() and not alive(holder)) or lost(holder, ARGV[4]) then
  redis.call('HSET', job, 'reason', 'null')
  close(ARGV[1], 'cancelled', ARGV[2])
  return 'cancelled'
end
redis.call('HSETNX', job, 'cancel', ARGV[2])
redis.call('HSET', job, 'reason', ARGV[3])
redis.call('PUBLISH', wake, 'cancel ' .. ARGV[1])
return state`);

/** ARGV: id, reason (JSON) → held | the state that forbids it. */
export const HOLD = script(`
if not state then return 'missing' end
if state == 'held' then return 'held' end
if state ~= 'queued' or launched() then return state end
redis.call('HSET', job, 'state', 'held', 'reason', ARGV[2], 'host', 'null')
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('SREM', pending, ARGV[1])
announce(ARGV[1], 'held')
redis.call('PUBLISH', wake, 'hold ' .. ARGV[1])
return 'held'`);

/** ARGV: id, reason (JSON) → queued | the state that forbids it. */
export const RELEASE = script(`
if not state then return 'missing' end
if state ~= 'held' then return state end
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[2])
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('SADD', pending, ARGV[1])
announce(ARGV[1], 'queued')
redis.call('PUBLISH', wake, 'release ' .. ARGV[1])
return 'queued'`);

/**
 * Also runs the job of a lost host elsewhere: the higher epoch tells the host, should it come back, to end its copy.
 * ARGV: id, silence of a lost host (ms), field, value, … (what starts anew) → queued | the state that forbids it (`waiting` for queued).
 */
export const RETRY = script(`
if not state then return 'missing' end
local holder = redis.call('HGET', job, 'claim_host')
local given = not ENDED[state] and state ~= 'held' and holder and launched() and lost(holder, ARGV[2])
if state == 'queued' and not given then return 'waiting' end
if not ENDED[state] and not given then return state end
redis.call('HSET', job, 'state', 'queued', unpack(ARGV, 3))
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('ZADD', live, redis.call('ZSCORE', jobs, ARGV[1]) or 0, ARGV[1])
redis.call('SADD', pending, ARGV[1])
announce(ARGV[1], 'queued')
redis.call('PUBLISH', wake, 'submit ' .. ARGV[1])
return 'queued'`);

/**
 * A host is forgotten: its job is given to others, or ends. The higher epoch tells the host, should it come back, to end its copy.
 * ARGV: id, host, epoch seen, new state, now, field, value, … → ok | alive | no.
 */
export const FORGET = script(`
if not state or ENDED[state] or redis.call('HGET', job, 'claim_host') ~= ARGV[2] or redis.call('HGET', job, 'epoch') ~= ARGV[3] then return 'no' end
if alive(ARGV[2]) then return 'alive' end
if #ARGV > 5 then redis.call('HSET', job, unpack(ARGV, 6)) end
redis.call('HINCRBY', job, 'epoch', 1)
if ENDED[ARGV[4]] then
  close(ARGV[1], ARGV[4], ARGV[5])
  return 'ok'
end
redis.call('HSET', job, 'state', 'queued', 'host', 'null')
redis.call('HDEL', job, 'claim', 'claim_host', 'cancel')
redis.call('SADD', pending, ARGV[1])
announce(ARGV[1], 'queued')
redis.call('PUBLISH', wake, 'submit ' .. ARGV[1])
return 'ok'`);

/** Queues a job anew whose queue entry is lost. ARGV: id, epoch seen, reason (JSON) → ok | no. */
export const REQUEUE = script(`
if not state or ENDED[state] or state == 'held' or redis.call('HGET', job, 'epoch') ~= ARGV[2] then return 'no' end
local holder = redis.call('HGET', job, 'claim_host')
if holder and alive(holder) then return 'no' end
if launched() then return 'no' end
redis.call('HDEL', job, 'claim', 'claim_host')
redis.call('HSET', job, 'state', 'queued', 'reason', ARGV[3], 'host', 'null')
redis.call('HINCRBY', job, 'epoch', 1)
redis.call('SADD', pending, ARGV[1])
redis.call('PUBLISH', wake, 'submit ' .. ARGV[1])
return 'ok'`);
