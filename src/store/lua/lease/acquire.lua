-- ARGV: owner, request (JSON), record (JSON), ttl ms, reserve-after ms, what is promised on this host already (JSON).
-- → JSON {granted: [uuid], foreign: [bytes], record} or {waits: [...], passed: it would fit, but for those who go first}
local owner, req, record = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
req.user = record.user
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
  for _, other in ipairs(leased()) do
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
  pay(record, now + AHEAD)
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
      record.supervisors, record.beside, record.ends_at, record.paid_until = mine.supervisors, mine.beside, mine.ends_at, mine.paid_until
      for _, device in ipairs(mine.devices) do device.total, device.host = known[device.uuid].total, known[device.uuid].host or nil end
      return grant(mine.devices)
    end
  end
end

-- Who goes first: what an admin has put first or last (`across`); the user who has used least lately; of one user's the higher
-- priority; and among equals who has waited long. He has as many devices as he wants, but only who could start once the leases are given back.
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
local function across(x) return num(x.across) or 0 end
local function rank(x) return num(x.priority) or 0 end
local function user_of(x) return type(x.user) == 'string' and x.user or '' end
-- Of each user who waits: what was used lately, and since when the first of the jobs waits.
local users = {}
local function known_user(x, waits)
  local name = user_of(x)
  local user = users[name] or {used = used(name), since = waits}
  user.since = math.min(user.since, waits)
  users[name] = user
end
for _, ticket in ipairs(tickets) do known_user(ticket, ticket.since) end
known_user(req, since)
local function least_used(a, b)
  local one, other = users[a], users[b]
  if one.used ~= other.used then return one.used < other.used end
  if one.since ~= other.since then return one.since < other.since end
  return a < b
end
table.sort(tickets, function(a, b)
  if across(a) ~= across(b) then return across(a) > across(b) end
  if user_of(a) ~= user_of(b) then return least_used(user_of(a), user_of(b)) end
  if rank(a) ~= rank(b) then return rank(a) > rank(b) end
  if a.since ~= b.since then return a.since < b.since end
  return a.owner < b.owner
end)
-- Why a ticket goes before the request: priority, usage or waited; nil: it does not.
local function goes_first(ticket)
  local waited = ticket.since < since and now - ticket.since > reserve_after and 'waited' or nil
  if across(ticket) ~= across(req) then return across(ticket) > across(req) and 'priority' or nil end
  if user_of(ticket) ~= user_of(req) then
    local theirs, own = users[user_of(ticket)], users[user_of(req)]
    if theirs.used ~= own.used then return theirs.used < own.used and 'usage' or nil end
    return least_used(user_of(ticket), user_of(req)) and now - theirs.since > reserve_after and 'waited' or nil
  end
  if rank(ticket) ~= rank(req) then return rank(ticket) > rank(req) and 'priority' or nil end
  return waited
end
-- GPUs that a user holds something of, by uuid, and how many.
local function gpus_of(user)
  local uuids, count = {}, 0
  for _, lease in ipairs(leased()) do
    if user_of(lease) == user and lease.owner ~= owner then
      for _, device in ipairs(lease.devices) do
        if not device.host and not uuids[device.uuid] then uuids[device.uuid], count = true, count + 1 end
      end
    end
  end
  return uuids, count
end
-- Another one goes before it by now: what it was promised holds no more, and would keep devices idle for nothing.
local function unpromise(ticket)
  ticket.start_by = nil
  redis.call('HSET', queue, ticket.owner, cjson.encode(ticket))
end
local own_gpus, own_count = gpus_of(user_of(req))
local most = num(req.most)
local spare = most and most - own_count or math.huge
local reserved, first = {}, true
for _, ticket in ipairs(tickets) do
  local why = goes_first(ticket)
  if why then
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
    local limited = false
    if #possible >= ticket.count and num(ticket.most) then
      local _, count = gpus_of(user_of(ticket))
      limited = count + ticket.count > ticket.most
      -- What a user may still have is kept for the first of the user's jobs, as devices are kept
      if user_of(ticket) == user_of(req) and ticket.count <= ticket.most then spare = spare - ticket.count end
    end
    if #possible >= ticket.count and not limited then
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
      elseif ticket.start_by then
        unpromise(ticket)
      end
      for i = 1, ticket.count do
        reserved[possible[i].uuid] = {owner = ticket.owner, start = start < NEVER and start or now, why = why, user = ticket.user}
      end
    end
  end
end

-- Of those that would do, as many as the user may have.
local function choose(choice)
  local chosen, more = {}, spare
  for _, one in ipairs(choice) do
    local device = one.device
    local free = device.host or own_gpus[device.uuid]
    if #chosen < req.count and (free or more > 0) then
      if not free then more = more - 1 end
      chosen[#chosen + 1] = {uuid = device.uuid, id = device.id, total = device.total, host = device.host or nil}
    end
  end
  return #chosen >= req.count and chosen or nil
end
local chosen = choose(fitting(req, held, owner, reserved))
if chosen then
  for _, ticket in ipairs(tickets) do
    if ticket.start_by and not goes_first(ticket) then unpromise(ticket) end
  end
  return grant(chosen)
end

redis.call('HSET', queue, owner, cjson.encode({since = since, devices = req.devices, count = req.count, bytes = req.bytes, need = req.need,
  share = req.share, pair = req.pair, avoid = req.avoid, lenient = req.lenient, priority = req.priority, across = req.across, user = req.user, most = most, start_by = mine and mine.start_by, expires_at = now + 15000}))
local waits = {}
for i, device in ipairs(req.devices) do
  local h, kept = held[device.uuid], reserved[device.uuid]
  waits[i] = {id = device.id, uuid = device.uuid, total = device.total, foreign = foreign(device, held, owner), reserved = h and h.bytes or 0,
    owners = h and h.owners or {}, blocked = kept and kept.owner,
    why = kept and kept.why, user = kept and kept.user}
end
local ample = #fitting(req, held, owner, {}) >= req.count
local full = ample and most and not choose(fitting(req, held, owner, {}))
return cjson.encode({waits = waits, passed = ample and not full, limit = full and {most = most, used = own_count} or nil})
