// Where the user is: view, search and store are in the address, so that back, reload and bookmarks
// work.

const VIEWS = ["list", "changes", "import"];

/**
 * By what the list can be sorted, as the service has it; the first is what the address leaves out.
 */
export const SORTS = ["id", "-id", "name", "-name", "-changed", "changed"];
const FLAGS = ["bare", "twins"]; // only stores without an address, only possible duplicates
const DAY = /^\d{4}-\d\d-\d\d$/;

/**
 * The place that the address names; `store` is an id as text, "new", or null. Any other view is the
 * list. `sort`, `bare`, `twins` and `since`, a day or "", say which stores the list has.
 */
export function place() {
  const query = new URLSearchParams(location.search);
  const view = VIEWS.find((name) => name === query.get("view")) ?? "list";
  const sort = SORTS.find((name) => name === query.get("sort")) ?? SORTS[0];
  const [bare, twins] = FLAGS.map((name) => query.has(name));
  const since = query.get("since") ?? "";
  return {
    view,
    q: query.get("q") ?? "",
    store: plain(query.get("store")),
    sort,
    bare,
    twins,
    since: isDay(since) ? since : "",
  };
}

/** Whether a text names a day that there is; browsers take February 31 for March 3. */
function isDay(text) {
  const moment = DAY.test(text) ? Date.parse(text) : NaN;
  return !Number.isNaN(moment) && new Date(moment).toISOString().startsWith(text);
}

/** An id without the zeros in front of it, as the service has it: drafts and changes go by it. */
const plain = (id) => id?.replace(/^0+(?=\d+$)/, "") || null;

/** The address of a place, relative to the console. */
export function href({
  view = "list",
  q = "",
  store = null,
  sort = SORTS[0],
  since = "",
  ...flags
}) {
  const query = new URLSearchParams();
  if (view !== "list") query.set("view", view);
  if (q) query.set("q", q);
  if (sort !== SORTS[0]) query.set("sort", sort);
  for (const name of FLAGS) if (flags[name]) query.set(name, "1");
  if (since) query.set("since", since);
  if (store !== null) query.set("store", store);
  return query.size ? `?${query}` : "./";
}

const OTHER_LIST = ["q", "sort", "since", ...FLAGS];

/** Go to a place: what is not named stays. */
export function go(changes, { replace = false } = {}) {
  const address = href({ ...place(), ...changes });
  window.dispatchEvent(new Event("leave"));
  // The state says where the user is in the list.
  const state = OTHER_LIST.some((name) => name in changes) ? null : history.state;
  history[replace ? "replaceState" : "pushState"](state, "", address);
  window.dispatchEvent(new Event("place"));
}

window.addEventListener("popstate", () => window.dispatchEvent(new Event("place")));

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const address = link?.getAttribute("href");
  if (!link || link.download || event.defaultPrevented || event.button) return;
  if (
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey ||
    !/^(\?|\.\/$)/.test(address)
  ) {
    return;
  }
  event.preventDefault();
  window.dispatchEvent(new Event("leave"));
  history.pushState(link.closest(".stores") ? history.state : null, "", address);
  window.dispatchEvent(new Event("place"));
});
