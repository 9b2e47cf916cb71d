-- GETs, POSTs and PUTs in even shares: wrk ... URL -- GETS POSTS PUTS (of 100) [scattered].
-- Every POST has a name of its own: the next one in order, or with `scattered` one of all over the alphabet.
dofile("report.lua")

local kinds, at, created, step = {}, 0, 0, 1
local head, reads, replaces = "", {}, {}

local function write(method, path, name)
  local body = '{"name":"Bench ' .. name .. '","address":"Lane ' .. name .. '"}'
  return wrk.format(method, path, {["Content-Type"] = "application/json"}, body)
end

function init(args)
  local gets, posts = tonumber(args[1]), tonumber(args[2])
  if args[4] == "scattered" then
    step = 7654321 -- has no factor in common with 10,000,000, so that no name comes twice
  end
  for number = 1, 100 do
    -- 37 has no factor in common with 100: the shares are spread evenly, the same for every system
    local slot = (number * 37) % 100
    kinds[number] = slot < gets and reads or slot < gets + posts and "create" or replaces
  end
  for id = 1, 10 do
    reads[id] = wrk.format("GET", "/api/stores/" .. id)
    replaces[id] = {}
    for number = 1, 100 do
      replaces[id][number] = write("PUT", "/api/stores/" .. id, string.format("%07d", number))
    end
  end
  head = write("POST", "/api/stores", "0000000"):match("^.-\r\n\r\n")
end

function request()
  at = at + 1
  local kind = kinds[at % 100 + 1]
  if kind == reads then
    return reads[at % 10 + 1]
  elseif kind == replaces then
    return replaces[at % 10 + 1][math.floor(at / 10) % 100 + 1]
  end
  created = created + 1
  local name = string.format("%07d", created * step % 10000000)
  return head .. '{"name":"Bench ' .. name .. '","address":"Lane ' .. name .. '"}'
end
