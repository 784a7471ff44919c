import { Script } from './script.js';

/**
 * Leases are one HASH, owner → JSON, read and changed only by these scripts, with Redis's clock. KEYS are always: leases,
 * lease queue, wake channel, events, refused.
 *
 * A device is free for a request when nobody else holds it, or when all who hold it share, the request shares too, and
 * total - what strangers use - what is reserved leaves room. A lenient request waits for leases alone: where strangers leave it
 * less than it asks for, it makes do with that.
 */
const PRELUDE = `
local leases, queue, wake, events, refused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function num(x) return type(x) == 'number' and x or nil end
local function list(x) return type(x) == 'table' and x or {} end
local function read(key)
  local found = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ok, record = pcall(cjson.decode, all[i + 1])
    if ok and type(record) == 'table' and type(record.devices) == 'table' and num(record.expires_at) then
      record.owner = all[i]
      found[#found + 1] = record
    elseif not (ok and type(record) == 'table' and (num(record.schema) or 1) > 1) then -- a newer version's is left alone
      redis.call('HDEL', key, all[i])
      redis.call('LPUSH', refused, cjson.encode({what = key .. ' ' .. all[i], why = 'it cannot be read', was = string.sub(all[i + 1], 1, 4096)}))
      redis.call('LTRIM', refused, 0, 199)
    end
  end
  return found
end
local function announce(record, action)
  for _, device in ipairs(record.devices) do
    redis.call('XADD', events, 'MAXLEN', '~', 10000, '*', 'type', 'lease', 'job', record.owner, 'key', '', 'device', tostring(device.id), 'owner', record.owner,
      'bytes', tostring(num(record.bytes) or 'whole'), 'action', action)
  end
end
-- What is held of each device by others than the owner: {bytes, alone (somebody does not share), owners}
local function holdings(owner)
  local held = {}
  for _, record in ipairs(read(leases)) do
    if record.owner ~= owner then
      for _, device in ipairs(record.devices) do
        local h = held[device.uuid] or {bytes = 0, alone = false, owners = {}, by = {}}
        h.bytes = h.bytes + (num(record.bytes) or 0)
        if not record.share or not num(record.bytes) then h.alone = true end
        h.owners[#h.owners + 1] = {owner = record.owner, bytes = num(record.bytes), host = record.host, expired = record.expires_at < now}
        h.by[record.owner] = true
        held[device.uuid] = h
      end
    end
  end
  return held
end
-- Bytes that strangers use: jobs that have no lease here (another user's, with a Redis of his own) are strangers, too.
local function foreign(device, held, owner)
  local h = held[device.uuid]
  if device.foreign < 0 then return math.max(0, device.used - (h and h.bytes or 0)) end
  local sum = device.foreign
  for _, one in ipairs(list(device.jobs)) do
    if one.job ~= owner and not (h and h.by[one.job]) then sum = sum + (num(one.bytes) or 0) end
  end
  return sum
end
-- What was promised and is not here was lost with Redis's data: it is promised still. Returns how many.
local function restore(promises, ttl)
  local count = 0
  for _, promise in ipairs(promises) do
    if redis.call('HEXISTS', leases, promise.owner) == 0 then
      promise.taken_at, promise.expires_at = now, now + ttl
      redis.call('HSET', leases, promise.owner, cjson.encode(promise))
      announce(promise, 'taken')
      count = count + 1
    end
  end
  return count
end
-- Bytes of it that the request asks for.
local function wants(device, req) return num(req.bytes) or num(req.need) or device.total * 0.9 end
-- Room left after the request where \`others\` is what strangers use, or nil where it does not fit beside \`h\`.
local function room(device, req, h, others)
  local free = device.total - others
  local need = wants(device, req)
  if req.lenient then need = math.min(need, free) end
  if not num(req.bytes) or not req.share then
    if h then return nil end
    if device.host then return 0 end
    if free < need then return nil end
    return 0
  end
  if h and h.alone then return nil end
  if not h and device.host then return math.max(0, device.total - req.bytes) end
  local left = free - (h and h.bytes or 0) - need
  if left < 0 then return nil end
  return left
end
-- The devices that would do, those first that should be taken first.
local function fitting(req, held, owner, taken)
  local found, ample = {}, 0
  for index, device in ipairs(req.devices) do
    local h, others = held[device.uuid], foreign(device, held, owner)
    local free, need = device.total - others, wants(device, req)
    local left = room(device, req, h, others)
    if free >= need / 2 or device.host then ample = ample + 1 end
    if left and not taken[device.uuid] then
      found[#found + 1] = {device = device, left = left, shared = h and 0 or 1, index = index, others = others,
        short = not device.host and free < need and 1 or 0, scarce = not device.host and free < need / 2, free = free}
    end
  end
  -- A lenient request makes do with less than half only where no device will ever give it more.
  local enough = {}
  for _, one in ipairs(found) do
    if not one.scarce or ample < req.count then enough[#enough + 1] = one end
  end
  -- Packing: the device that is shared already and has least room left comes first, so that whole devices stay free.
  table.sort(enough, function(a, b)
    if a.short ~= b.short then return a.short < b.short end
    if a.short == 1 and a.free ~= b.free then return a.free > b.free end
    if a.shared ~= b.shared then return a.shared < b.shared end
    if a.left ~= b.left then return a.left < b.left end
    return a.index < b.index
  end)
  return enough
end
`;

const script = (lua: string): Script => new Script(PRELUDE + lua);

/** ARGV: ttl ms, promises (JSON) → how many were lost. */
export const RESTORE = script(`return restore(cjson.decode(ARGV[2]), tonumber(ARGV[1]))`);

/**
 * ARGV: owner, request (JSON), record (JSON), ttl ms, patience ms, what is promised on this host already (JSON).
 * → JSON {granted: [uuid], foreign: [bytes], record} or {waits: [...]}
 */
export const ACQUIRE = script(`
local owner, req, record = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5])
restore(cjson.decode(ARGV[6]), ttl)
local held = holdings(owner)
local known = {}
for _, device in ipairs(req.devices) do known[device.uuid] = device end
local function add(names, name)
  for _, one in ipairs(names) do if one == name then return names end end
  if #names < 16 then names[#names + 1] = name end
  return names
end
-- Who shares a device is told so for good: what was measured there was not measured alone.
local function meet(devices)
  local on, met = {}, list(record.beside)
  for _, device in ipairs(devices) do on[device.uuid] = true end
  for _, other in ipairs(read(leases)) do
    local both = false
    for _, device in ipairs(other.devices) do both = both or on[device.uuid] end
    if both and other.owner ~= owner then
      met = add(met, other.owner)
      other.beside = add(list(other.beside), owner)
      redis.call('HSET', leases, other.owner, cjson.encode(other))
    end
  end
  if #met > 0 then record.beside = met end
end
local function grant(devices)
  record.owner, record.devices, record.expires_at = owner, devices, now + ttl
  if not record.taken_at then record.taken_at = now end
  meet(devices)
  redis.call('HSET', leases, owner, cjson.encode(record))
  redis.call('HDEL', queue, owner)
  announce(record, 'taken')
  local uuids, others = {}, {}
  for i, device in ipairs(devices) do
    uuids[i], others[i] = device.uuid, foreign(known[device.uuid], held, owner)
  end
  return cjson.encode({granted = uuids, foreign = others, record = record})
end

-- An earlier process of the same owner left a lease: what was promised stays promised.
local old = redis.call('HGET', leases, owner)
if old then
  local ok, mine = pcall(cjson.decode, old)
  if ok and type(mine.devices) == 'table' and mine.host == record.host and #mine.devices == req.count then
    local all = true
    for _, device in ipairs(mine.devices) do all = all and known[device.uuid] ~= nil end
    if all then
      local fits = true
      for _, device in ipairs(mine.devices) do
        local here = known[device.uuid]
        fits = fits and room(here, req, held[device.uuid], foreign(here, held, owner)) ~= nil
      end
      if not fits then record.bytes, record.share = mine.bytes, mine.share end
      record.supervisors, record.beside = mine.supervisors, mine.beside
      return grant(mine.devices)
    end
  end
end

-- Who has a higher priority goes first, and among equals who has waited long, on as many devices as he wants: but only who could
-- start once the leases are given back.
-- Memory of strangers may never be, and would leave devices idle for nobody.
local tickets, mine = {}, nil
for _, ticket in ipairs(read(queue)) do
  if ticket.expires_at < now then redis.call('HDEL', queue, ticket.owner)
  elseif ticket.owner == owner then mine = ticket
  elseif num(ticket.since) and num(ticket.count) then tickets[#tickets + 1] = ticket end
end
local since = mine and num(mine.since) or now
local function rank(x) return num(x.priority) or 0 end
table.sort(tickets, function(a, b)
  if rank(a) ~= rank(b) then return rank(a) > rank(b) end
  if a.since ~= b.since then return a.since < b.since end
  return a.owner < b.owner
end)
local blocked, outranked = {}, {}
for _, ticket in ipairs(tickets) do
  local older = ticket.since < since and now - ticket.since > patience
  if rank(ticket) > rank(req) or (rank(ticket) == rank(req) and older) then
    local possible = {}
    local theirs = holdings(ticket.owner)
    for index, device in ipairs(ticket.devices) do
      local h, others = theirs[device.uuid], foreign(device, theirs, ticket.owner)
      if not blocked[device.uuid] and room(device, ticket, nil, others) then
        -- Whoever ends first makes the place: what is free now, then what has least on it.
        possible[#possible + 1] = {uuid = device.uuid, index = index, busy = room(device, ticket, h, others) and 0 or 1,
          bytes = h and (h.alone and device.total or h.bytes) or 0}
      end
    end
    if #possible >= ticket.count then
      table.sort(possible, function(a, b)
        if a.busy ~= b.busy then return a.busy < b.busy end
        if a.bytes ~= b.bytes then return a.bytes < b.bytes end
        return a.index < b.index
      end)
      for i = 1, ticket.count do
        blocked[possible[i].uuid], outranked[possible[i].uuid] = ticket.owner, not older
      end
    end
  end
end

local choice = fitting(req, held, owner, blocked)
if #choice >= req.count then
  local chosen = {}
  for i = 1, req.count do chosen[i] = {uuid = choice[i].device.uuid, id = choice[i].device.id} end
  return grant(chosen)
end

redis.call('HSET', queue, owner, cjson.encode({since = since, devices = req.devices, count = req.count, bytes = req.bytes, need = req.need,
  share = req.share, lenient = req.lenient, priority = req.priority, expires_at = now + 15000}))
local waits = {}
for i, device in ipairs(req.devices) do
  local h = held[device.uuid]
  waits[i] = {id = device.id, uuid = device.uuid, total = device.total, foreign = foreign(device, held, owner), reserved = h and h.bytes or 0,
    owners = h and h.owners or {}, blocked = blocked[device.uuid],
    outranked = outranked[device.uuid]}
end
return cjson.encode({waits = waits})`);

/** ARGV: owner, instance, ttl ms → 1, or 0 where the lease is gone or another's. */
export const RENEW = script(`
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local ok, record = pcall(cjson.decode, text)
if not ok or record.instance ~= ARGV[2] then return 0 end
record.expires_at = now + tonumber(ARGV[3])
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
return 1`);

/** ARGV: owner, instance, supervisor (JSON) → 1 or 0. */
export const ATTACH = script(`
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local record = cjson.decode(text)
if record.instance ~= ARGV[2] then return 0 end
if type(record.supervisors) ~= 'table' then record.supervisors = {} end
record.supervisors[#record.supervisors + 1] = cjson.decode(ARGV[3])
while #record.supervisors > 4 do table.remove(record.supervisors, 1) end
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
return 1`);

/** ARGV: owner, instance, request (JSON: bytes, share, devices) → 1, 0 where the lease is gone, -1 where it does not fit. */
export const RESIZE = script(`
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
local record, req = cjson.decode(text), cjson.decode(ARGV[3])
if record.instance ~= ARGV[2] then return 0 end
local smaller = num(req.bytes) and (not num(record.bytes) or req.bytes <= record.bytes)
if not smaller then
  local held = holdings(ARGV[1])
  req.share = record.share
  for _, device in ipairs(req.devices) do
    if room(device, req, held[device.uuid], foreign(device, held, ARGV[1])) == nil then return -1 end
  end
end
record.bytes = num(req.bytes)
redis.call('HSET', leases, ARGV[1], cjson.encode(record))
redis.call('PUBLISH', wake, 'lease ' .. ARGV[1])
return 1`);

/** ARGV: owner, instance ('' any), text seen ('' any: else only while it is unchanged) → 1 or 0. */
export const FREE = script(`
redis.call('HDEL', queue, ARGV[1])
local text = redis.call('HGET', leases, ARGV[1])
if not text then return 0 end
if ARGV[3] ~= '' and text ~= ARGV[3] then return 0 end
local ok, record = pcall(cjson.decode, text)
if ok and ARGV[2] ~= '' and record.instance ~= ARGV[2] then return 0 end
redis.call('HDEL', leases, ARGV[1])
if ok and type(record.devices) == 'table' then
  record.owner = ARGV[1]
  announce(record, 'freed')
end
redis.call('PUBLISH', wake, 'lease ' .. ARGV[1])
return 1`);
