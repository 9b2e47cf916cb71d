-- Requests that differ: wrk ... URL -- stores=N skip=N put=PERCENT post=PERCENT by=one|id|name unique=1 scattered=1
--   seconds=N keys=1
--
-- Ids and names are walked through in no order, each store once before any is repeated: a linear congruential
-- generator of full period over the next power of two. `skip` is how far earlier runs have walked. Every write has
-- a name of its own, so that none leaves a store as it is. With `seconds` nothing is sent after that time, so that every
-- request has its response when wrk ends, and statuses other than 200 are counted.
dofile("report.lua")
local bit = require("bit")
local ffi = require("ffi")

local MULTIPLIER, INCREMENT = 1664525, 1013904223 -- full period for every power of two
local SCATTER = 7654321 -- no factor in common with 10,000,000, so that no name comes twice
local NUMBERS = 10000000
sent, writes, statuses = 0, 0, ""

local options = {stores = 10, skip = 0, put = 0, post = 0, by = "id"}
local modulus, shift, position, kinds = 1, 0, 0, {}
local first, tried -- when the first request was sent; whether wrk has called request() without sending anything
local get, put, post -- the two parts of a head: before the path, and after it

ffi.cdef("struct clock { long seconds, nanoseconds; }; int clock_gettime(int, struct clock *);")
local clock = ffi.new("struct clock")

local function now()
  ffi.C.clock_gettime(1, clock) -- the monotonic one
  return tonumber(clock.seconds) + tonumber(clock.nanoseconds) / 1e9
end

-- In wrk a script with response() pays for every field that it is given: only cases with few requests have it.
local function count_statuses()
  local counts = {}
  response = function(status)
    if status ~= 200 then
      counts[status] = (counts[status] or 0) + 1
      statuses = ""
      for number, count in pairs(counts) do
        statuses = statuses .. string.format(" %d times %d", count, number)
      end
    end
  end
end

local function parts(method, body)
  local head = wrk.format(method, "@", body and {["Content-Type"] = "application/json"}, body)
  local before, after = head:match("^(%u+ )@(.-\r\n)\r\n")
  return {before = before, after = after}
end

local function next_id()
  local id
  repeat
    position = (position * MULTIPLIER + INCREMENT) % modulus
    id = bit.bxor(position, bit.rshift(position, shift))
  until id < options.stores
  return id + 1
end

local function hex(multiplier)
  return bit.tohex((sent * multiplier) % 4294967296) -- an odd multiplier: no two are equal
end

-- A UUID
local function uuid(a, b, c, d)
  return a .. "-" .. b:sub(1, 4) .. "-4" .. b:sub(5, 7) .. "-8" .. c:sub(1, 3) .. "-" .. d .. c:sub(4, 7)
end

-- What Envoy and other proxies add to each request, or a key of its own.
local function extra_fields()
  if not (options.unique or options.keys) then
    return ""
  end
  local a, b, c, d = hex(40503077), hex(92837111), hex(68917503), hex(115249691)
  if options.keys then
    return "Idempotency-Key: " .. uuid(a, b, c, d) .. "\r\n"
  end
  return "x-request-id: " .. uuid(a, b, c, d) .. "\r\ntraceparent: 00-" .. a .. b .. c .. d .. "-" .. d .. a .. "-01\r\n"
end

local function body()
  local number = sent % NUMBERS
  if options.scattered then
    number = number * SCATTER % NUMBERS
  end
  local name = string.format("%07d", number)
  return '{"name":"Bench ' .. name .. '","address":"Lane ' .. name .. '"}'
end

function init(args)
  for _, word in ipairs(args) do
    local key, value = word:match("^(%l+)=(%w+)$")
    options[key] = tonumber(value) or value
  end
  while modulus < options.stores do
    modulus, shift = modulus * 2, shift + 0.5
  end
  shift = math.max(1, math.ceil(shift))
  for _ = 1, options.skip % options.stores do
    next_id()
  end
  sent = options.skip
  if options.seconds then
    seconds = options.seconds
    count_statuses()
  end
  for number = 1, 100 do
    -- 37 has no factor in common with 100: the shares are spread evenly, the same for every system
    local slot = (number * 37) % 100
    kinds[number] = slot < options.put and "put" or slot < options.put + options.post and "post" or "get"
  end
  get, put, post = parts("GET"), parts("PUT", body()), parts("POST", body())
end

local function path()
  if options.by == "one" then
    return "/api/stores/7"
  elseif options.by == "name" then
    return string.format("/api/stores?name=Store%%20%06d", next_id())
  end
  return "/api/stores/" .. next_id()
end

function request()
  if not tried then
    tried = true
    return get.before .. "/" .. get.after .. "\r\n"
  end
  if seconds then
    first = first or now()
    if now() >= first + seconds then
      return "" -- the connection stays idle
    end
  end
  sent = sent + 1
  local extra = extra_fields()
  local kind = kinds[sent % 100 + 1]
  if kind == "get" then
    return get.before .. path() .. get.after .. extra .. "\r\n"
  elseif kind == "put" then
    writes = writes + 1
    return put.before .. path() .. put.after .. extra .. "\r\n" .. body()
  end
  writes = writes + 1
  return post.before .. "/api/stores" .. post.after .. extra .. "\r\n" .. body()
end
