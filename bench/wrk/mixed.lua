-- Sends ready-made requests round and round: wrk ... URL -- GETS POSTS PUTS (shares of 100).
dofile("report.lua")

local ready, at = {}, 0

local function write(method, path, number)
  local body = string.format('{"name":"Bench %06d","address":"Lane %06d"}', number, number)
  return wrk.format(method, path, {["Content-Type"] = "application/json"}, body)
end

function init(args)
  local gets, posts = tonumber(args[1]), tonumber(args[2])
  for number = 1, 1000 do
    -- 37 has no factor in common with 100: the shares are spread evenly, the same for every system
    local slot = (number * 37) % 100
    if slot < gets then
      ready[number] = wrk.format("GET", "/api/stores/" .. (number % 10 + 1))
    elseif slot < gets + posts then
      ready[number] = write("POST", "/api/stores", number)
    else
      ready[number] = write("PUT", "/api/stores/" .. (number % 10 + 1), number)
    end
  end
end

function request()
  at = at % 1000 + 1
  return ready[at]
end
