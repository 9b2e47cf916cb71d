// Where one is: view, search and store are in the address, so that back, reload and bookmarks work.

const VIEWS = ["list", "changes", "import"];

/** The place that the address names; `store` is an id as text, "new", or null. Any other view is the list. */
export function place() {
  const query = new URLSearchParams(location.search);
  const view = VIEWS.find((name) => name === query.get("view")) ?? "list";
  return { view, q: query.get("q") ?? "", store: plain(query.get("store")) };
}

/** An id without the zeros in front of it, as the service has it: drafts and changes go by it. */
const plain = (id) => id?.replace(/^0+(?=\d+$)/, "") || null;

/** The address of a place, relative to the console. */
export function href({ view = "list", q = "", store = null }) {
  const query = new URLSearchParams();
  if (view !== "list") query.set("view", view);
  if (q) query.set("q", q);
  if (store !== null) query.set("store", store);
  return query.size ? `?${query}` : "./";
}

/** Go to a place: what is not named stays. */
export function go(changes, { replace = false } = {}) {
  const address = href({ ...place(), ...changes });
  const state = "q" in changes ? null : history.state; // how many rows of the list are shown
  history[replace ? "replaceState" : "pushState"](state, "", address);
  window.dispatchEvent(new Event("place"));
}

window.addEventListener("popstate", () => window.dispatchEvent(new Event("place")));

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const address = link?.getAttribute("href");
  if (!link || link.download || event.defaultPrevented || event.button) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || !/^(\?|\.\/$)/.test(address)) return;
  event.preventDefault();
  history.pushState(null, "", address);
  window.dispatchEvent(new Event("place"));
});
