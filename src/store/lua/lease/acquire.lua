-- ARGV: owner, request (JSON), record (JSON), ttl ms, reserve-after ms, what is promised on this host already (JSON).
-- → JSON {granted: [uuid], foreign: [bytes], record} or {waits: [...], passed: it would fit, but for those who go first}
local owner, req, record = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local ttl, reserve_after = tonumber(ARGV[4]), tonumber(ARGV[5])
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
  if not num(record.ends_at) and num(req.lasts) then record.ends_at = now + req.lasts end
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
      record.supervisors, record.beside, record.ends_at = mine.supervisors, mine.beside, mine.ends_at
      return grant(mine.devices)
    end
  end
end

-- Who has a higher priority goes first, and among equals who has waited long, on as many devices as he wants: but only who could
-- start once the leases are given back.
-- Memory of strangers may never be, and would leave devices idle for nobody.
-- Once it is known when the first of them can start at the latest, that is a promise: it is never put off, or a row of jobs that
-- take longer than expected could go before him for ever.
local tickets, mine = {}, nil
for _, ticket in ipairs(read(queue)) do
  if ticket.expires_at < now then redis.call('HDEL', queue, ticket.owner)
  elseif ticket.owner == owner then mine = ticket
  elseif num(ticket.since) and num(ticket.count) then tickets[#tickets + 1] = ticket end
end
-- Who was put back into his queue, for another host to try, has waited all the same.
local since = math.min(now, mine and num(mine.since) or now, num(req.since) or now)
local function rank(x) return num(x.priority) or 0 end
table.sort(tickets, function(a, b)
  if rank(a) ~= rank(b) then return rank(a) > rank(b) end
  if a.since ~= b.since then return a.since < b.since end
  return a.owner < b.owner
end)
local reserved, first = {}, true
for _, ticket in ipairs(tickets) do
  local older = ticket.since < since and now - ticket.since > reserve_after
  if rank(ticket) > rank(req) or (rank(ticket) == rank(req) and older) then
    local possible = {}
    local theirs = holdings(ticket.owner)
    for index, device in ipairs(ticket.devices) do
      local h, others = theirs[device.uuid], foreign(device, theirs, ticket.owner)
      if not reserved[device.uuid] and room(device, ticket, nil, others) then
        -- Whoever ends first makes the place: what is free now, what will be next, then what has least on it.
        possible[#possible + 1] = {uuid = device.uuid, index = index, at = availableAt(device, ticket, h, others),
          bytes = h and (h.alone and device.total or h.bytes) or 0}
      end
    end
    if #possible >= ticket.count then
      table.sort(possible, function(a, b)
        if a.at ~= b.at then return a.at < b.at end
        if a.bytes ~= b.bytes then return a.bytes < b.bytes end
        return a.index < b.index
      end)
      local start = possible[ticket.count].at
      if first then
        local promised = num(ticket.start_by)
        if start < NEVER and (not promised or start < promised) then
          ticket.start_by = start
          redis.call('HSET', queue, ticket.owner, cjson.encode(ticket))
        end
        start, first = num(ticket.start_by) or start, false
      end
      for i = 1, ticket.count do
        reserved[possible[i].uuid] = {owner = ticket.owner, start = start < NEVER and start or now, outranked = not older}
      end
    end
  end
end

local choice = fitting(req, held, owner, reserved)
if #choice >= req.count then
  local chosen = {}
  for i = 1, req.count do chosen[i] = {uuid = choice[i].device.uuid, id = choice[i].device.id} end
  return grant(chosen)
end

redis.call('HSET', queue, owner, cjson.encode({since = since, devices = req.devices, count = req.count, bytes = req.bytes, need = req.need,
  share = req.share, lenient = req.lenient, priority = req.priority, start_by = mine and mine.start_by, expires_at = now + 15000}))
local waits = {}
for i, device in ipairs(req.devices) do
  local h, kept = held[device.uuid], reserved[device.uuid]
  waits[i] = {id = device.id, uuid = device.uuid, total = device.total, foreign = foreign(device, held, owner), reserved = h and h.bytes or 0,
    owners = h and h.owners or {}, blocked = kept and kept.owner,
    outranked = kept and kept.outranked}
end
return cjson.encode({waits = waits, passed = #fitting(req, held, owner, {}) >= req.count})
