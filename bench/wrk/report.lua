-- Prints one line of JSON when wrk is done; a script without request() and response() keeps wrk's fastest path.
local thread -- wrk has one

function setup(only)
  thread = only
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n@@{"requests":%d,"seconds":%.6f,"p50":%.4f,"p99":%.4f,"sent":%d,"writes":%d,'
      .. '"connect_errors":%d,"read_errors":%d,"write_errors":%d,"timeouts":%d,"refusals":%d,"statuses":"%s"}\n',
    summary.requests, thread:get("seconds") or summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    thread:get("sent") or 0, thread:get("writes") or 0,
    e.connect, e.read, e.write, e.timeout, e.status, thread:get("statuses") or ""))
end
