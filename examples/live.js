// Receive every change of a store as it happens, in a browser: import { listen } from "./live.js".
//
// `cursor` says where to start: the ETag of the list that you show, without its quotes, or "0" for all changes.
// `take` is called with "change" and the change, or with "reset": a backup was restored, so read the list again.
// The returned function stops listening.

export function listen(service, cursor, take) {
  let source, timer;
  const keep = (event) => {
    take(event.type, JSON.parse(event.data));
    cursor = event.lastEventId;
  };
  const connect = () => {
    source = new EventSource(`${service}/api/changes?after=${cursor}`);
    source.addEventListener("change", keep);
    source.addEventListener("reset", keep);
    source.addEventListener("error", () => {
      // A browser reconnects on its own, but not after a 503, which it gets while the database is unavailable.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(connect, 5000);
    });
  };
  connect();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
