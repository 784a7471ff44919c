-- Leases are one HASH, owner → JSON, read and changed only by these scripts, with Redis's clock. KEYS are always: leases,
-- lease queue, wake channel, events, refused, usage. The last of ARGV is always the half-life of usage (ms).
-- A device is free for a request when nobody else holds it, or when all who hold it share, the request shares too, and
-- total - what strangers use - what is reserved leaves room. A lenient request waits for leases alone: where strangers leave it
-- less than it asks for, it makes do with that.
local leases, queue, wake, events, refused, usage = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local half_life = tonumber(ARGV[#ARGV])
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
-- Device-seconds that a user has used lately: they count half after each half-life. HASH, user → {seconds, at}.
local function used(user)
  local text = redis.call('HGET', usage, user)
  local ok, was = pcall(cjson.decode, text or '')
  if not ok or type(was) ~= 'table' or not num(was.seconds) or not num(was.at) then return 0 end
  return was.seconds * 0.5 ^ (math.max(0, now - was.at) / half_life)
end
-- How many devices a lease is worth: where it shares one, its part of it.
local function worth(record)
  local sum = 0
  for _, device in ipairs(record.devices) do
    local part = record.share and num(record.bytes) and num(device.total)
    sum = sum + (part and device.total > 0 and math.min(1, record.bytes / device.total) or 1)
  end
  return sum
end
-- A lease is paid for ahead, by the minute: what is held counts at once, and a crash can lose a refund but no usage. `till` now:
-- the rest of the minute is given back.
local AHEAD = 60000
local function pay(record, till)
  local user = record.user
  if type(user) ~= 'string' then return end
  local seconds = worth(record) * (till - (num(record.paid_until) or now)) / 1000
  record.paid_until = till
  if seconds ~= 0 then redis.call('HSET', usage, user, cjson.encode({seconds = math.max(0, used(user) + seconds), at = now})) end
end
-- When a lease ends at the latest, by its time limit or by what the like of it took before (ms). Never: nobody knows, or it goes on for longer.
local NEVER = math.huge
local function expectedEnd(record)
  local at = num(record.ends_at)
  if at and at > now then return at end
end
-- All leases, read once; the scripts restore what was lost before.
local all_leases = nil
local function leased()
  all_leases = all_leases or read(leases)
  return all_leases
end
-- What is held of each device by others than the owner: {bytes, alone (somebody does not share), owners}
local function holdings(owner)
  local held = {}
  for _, record in ipairs(leased()) do
    if record.owner ~= owner then
      for _, device in ipairs(record.devices) do
        local h = held[device.uuid] or {bytes = 0, alone = false, pair = false, owners = {}, by = {}}
        h.bytes = h.bytes + (num(record.bytes) or 0)
        local alone = not record.share or not num(record.bytes)
        if alone then h.alone = true end
        if record.pair == true then h.pair = true end
        h.owners[#h.owners + 1] = {owner = record.owner, bytes = num(record.bytes), host = record.host, expired = record.expires_at < now,
          alone = alone, pair = record.pair == true, ends = expectedEnd(record)}
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
-- Whether the request is not to be beside who holds it: a pair is two at most, and some are known to be better off taking turns.
local function apart(req, h)
  if (req.pair or h.pair) and #h.owners > 1 then return true end
  for _, one in ipairs(h.owners) do
    for _, other in ipairs(list(req.avoid)) do
      if one.owner == other then return true end
    end
  end
  return false
end
-- Room left after the request where `others` is what strangers use, or nil where it does not fit beside `h`.
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
  if h and (h.alone or apart(req, h)) then return nil end
  if not h and device.host then return math.max(0, device.total - req.bytes) end
  local left = free - (h and h.bytes or 0) - need
  if left < 0 then return nil end
  return left
end
-- When a device would do for the request, as those who hold it end (ms); NEVER: nobody knows.
local function availableAt(device, req, h, others)
  if room(device, req, h, others) then return now end
  local holders = {}
  for _, one in ipairs(h and h.owners or {}) do holders[#holders + 1] = one end
  table.sort(holders, function(a, b) return (a.ends or NEVER) < (b.ends or NEVER) end)
  for gone = 1, #holders do
    local left = nil
    for i = gone + 1, #holders do
      left = left or {bytes = 0, alone = false, pair = false, owners = {}}
      left.bytes = left.bytes + (holders[i].bytes or 0)
      left.alone = left.alone or holders[i].alone
      left.pair = left.pair or holders[i].pair
      left.owners[#left.owners + 1] = holders[i]
    end
    if room(device, req, left, others) then return holders[gone].ends or NEVER end
  end
  return NEVER
end
-- Backfill: a device that is kept may be had by whoever has left it when its turn comes.
local function endsBefore(req, reservation)
  return num(req.lasts) ~= nil and now + req.lasts <= reservation.start
end
-- The devices that would do, those first that should be taken first. `kept`: for whom a device is kept, and until when.
local function fitting(req, held, owner, kept)
  local found, ample = {}, 0
  for index, device in ipairs(req.devices) do
    local h, others = held[device.uuid], foreign(device, held, owner)
    local free, need = device.total - others, wants(device, req)
    local left = room(device, req, h, others)
    if free >= need / 2 or device.host then ample = ample + 1 end
    if left and (not kept[device.uuid] or endsBefore(req, kept[device.uuid])) then
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
