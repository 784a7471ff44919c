import { Script } from './script.js';

/**
 * Leases are one HASH, owner → JSON, read and changed only by these scripts, with Redis's clock. KEYS are always: leases,
 * lease queue, wake channel, events, refused.
 *
 * A device is free for a request when nobody else holds it, or when all who hold it share, the request shares too, and
 * total - what others (not ours) use - what is reserved leaves room.
 */
const PRELUDE = `
local leases, queue, wake, events, refused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function num(x) return type(x) == 'number' and x or nil end
local function read(key)
  local found = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ok, record = pcall(cjson.decode, all[i + 1])
    if ok and type(record) == 'table' and type(record.devices) == 'table' and num(record.expires_at) then
      record.owner = all[i]
      found[#found + 1] = record
    else
      redis.call('HDEL', key, all[i])
      redis.call('LPUSH', refused, cjson.encode({what = key .. ' ' .. all[i], why = 'it cannot be read'}))
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
        local h = held[device.uuid] or {bytes = 0, alone = false, owners = {}}
        h.bytes = h.bytes + (num(record.bytes) or 0)
        if not record.share or not num(record.bytes) then h.alone = true end
        h.owners[#h.owners + 1] = {owner = record.owner, bytes = num(record.bytes), host = record.host, expired = record.expires_at < now}
        held[device.uuid] = h
      end
    end
  end
  return held
end
local function foreign(device, held)
  if device.foreign >= 0 then return device.foreign end
  local h = held[device.uuid]
  return math.max(0, device.used - (h and h.bytes or 0))
end
-- Room left after the request, or nil where it does not fit.
local function room(device, req, held)
  local h = held[device.uuid]
  local others = foreign(device, held)
  if not num(req.bytes) or not req.share then
    if h then return nil end
    local need = num(req.bytes) or num(req.need)
    if device.host then return 0 end
    if need then
      if device.total - others < need then return nil end
    elseif others > device.total * 0.1 then return nil end
    return 0
  end
  if h and h.alone then return nil end
  if not h and device.host then return math.max(0, device.total - req.bytes) end
  local left = device.total - others - (h and h.bytes or 0) - req.bytes
  if left < 0 then return nil end
  return left
end
`;

const script = (lua: string): Script => new Script(PRELUDE + lua);

/** ARGV: owner, request (JSON), record (JSON), ttl ms, patience ms. → JSON {granted: [uuid]} or {waits: [...]} */
export const ACQUIRE = script(`
local owner, req, record = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5])
local held = holdings(owner)
local function grant(devices)
  record.owner, record.devices, record.expires_at = owner, devices, now + ttl
  if not record.taken_at then record.taken_at = now end
  redis.call('HSET', leases, owner, cjson.encode(record))
  redis.call('HDEL', queue, owner)
  announce(record, 'taken')
  local uuids = {}
  for i, device in ipairs(devices) do uuids[i] = device.uuid end
  return cjson.encode({granted = uuids})
end

-- An earlier process of the same owner left a lease: what was promised stays promised.
local old = redis.call('HGET', leases, owner)
if old then
  local ok, mine = pcall(cjson.decode, old)
  if ok and type(mine.devices) == 'table' and mine.host == record.host and #mine.devices == req.count then
    local known = {}
    for _, device in ipairs(req.devices) do known[device.uuid] = device end
    local all = true
    for _, device in ipairs(mine.devices) do all = all and known[device.uuid] ~= nil end
    if all then
      local fits = true
      for _, device in ipairs(mine.devices) do fits = fits and room(known[device.uuid], req, held) ~= nil end
      if not fits then record.bytes, record.share = mine.bytes, mine.share end
      record.supervisors = mine.supervisors
      return grant(mine.devices)
    end
  end
end

-- Who has waited long goes first on the devices that he waits for.
local mine = nil
local blocked = {}
for _, ticket in ipairs(read(queue)) do
  if ticket.expires_at < now then redis.call('HDEL', queue, ticket.owner)
  elseif ticket.owner == owner then mine = ticket end
end
local since = mine and num(mine.since) or now
for _, ticket in ipairs(read(queue)) do
  if ticket.owner ~= owner and num(ticket.since) and ticket.since < since and now - ticket.since > patience then
    for _, device in ipairs(ticket.devices) do blocked[device.uuid] = ticket.owner end
  end
end

local fitting = {}
for index, device in ipairs(req.devices) do
  local left = room(device, req, held)
  if left and not blocked[device.uuid] then
    fitting[#fitting + 1] = {device = device, left = left, shared = held[device.uuid] and 0 or 1, index = index}
  end
end
-- Packing: the device that is shared already and has least room left comes first, so that whole devices stay free.
table.sort(fitting, function(a, b)
  if a.shared ~= b.shared then return a.shared < b.shared end
  if a.left ~= b.left then return a.left < b.left end
  return a.index < b.index
end)
if #fitting >= req.count then
  local chosen = {}
  for i = 1, req.count do chosen[i] = {uuid = fitting[i].device.uuid, id = fitting[i].device.id} end
  return grant(chosen)
end

redis.call('HSET', queue, owner, cjson.encode({since = since, devices = req.devices, count = req.count, expires_at = now + 15000}))
local waits = {}
for i, device in ipairs(req.devices) do
  local h = held[device.uuid]
  waits[i] = {id = device.id, uuid = device.uuid, total = device.total, foreign = foreign(device, held), reserved = h and h.bytes or 0,
    owners = h and h.owners or {}, blocked = blocked[device.uuid]}
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
    if room(device, req, held) == nil then return -1 end
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
