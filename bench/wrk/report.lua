-- Prints one line of JSON when wrk is done; a script without request() keeps wrk's fastest path.
local thread -- wrk has one

function setup(only)
  thread = only
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n@@{"requests":%d,"seconds":%.6f,"errors":%d,"p50":%.4f,"p99":%.4f,"p999":%.4f,"sent":%d,"writes":%d}\n',
    summary.requests, summary.duration / 1e6,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3,
    thread:get("sent") or 0, (thread:get("creates") or 0) + (thread:get("replaces") or 0)))
end
