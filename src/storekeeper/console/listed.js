// What the list shows of a store, and instead of stores where there are none.

import { button, h, icon } from "./dom.js";
import { cut, marked } from "./format.js";
import { recall } from "./keep.js";
import { words } from "./words.js";

const MAX_SHOWN = 200;

/**
 * Make the row of a store; `tag` says what others did to it. `needles` are the words of the search,
 * `link` leads to the store, `tick` is its box, and `keys` are its numbers in outside systems.
 */
export function storeRow(store, tag, { isSelected, needles, link, tick, keys }) {
  const draft = recall(`draft:${store.id}`)
    ? h("span", { class: "tag warn" }, words.store.unsaved)
    : null;
  const address = cut(store.address ?? "", MAX_SHOWN);
  const text = { dir: "auto", translate: "no" };
  const name = h("a", { href: link, ...text }, marked(store.name, needles));
  return h(
    "tr",
    {
      "data-id": String(store.id),
      class: tag ? "fresh" : undefined,
      "aria-current": isSelected && "true",
    },
    h("td", { class: "num" }, tick, String(store.id)),
    h("td", { class: "key", translate: "no" }, keys),
    h("td", { class: "name" }, name, draft, tag ? h("span", { class: "tag ok" }, tag) : null),
    h(
      "td",
      { class: "address", ...text, title: address.length > 40 && address },
      marked(address, needles),
    ),
  );
}

/**
 * What stands in the place of the stores that a search, or filters if `q` is empty, do not find.
 */
export function nothingFound(q, onClear) {
  const clear = button(words.list.clear, onClear);
  if (!q) return [h("h2", {}, words.list.nothingFits), clear];
  return [h("h2", {}, words.list.nothing(q)), h("p", {}, words.list.nothingWhy), clear];
}

/** What an empty list shows. */
export function nothingYet() {
  return [
    icon("shop"),
    h("h2", {}, words.list.empty),
    h("p", {}, words.list.emptyWhy),
    h(
      "div",
      { class: "actions" },
      h("a", { class: "button primary", href: "?store=new" }, words.list.first),
      h("a", { class: "button", href: "?view=import" }, words.list.firstImport),
    ),
    h("p", { class: "hint" }, words.list.emptyDemo),
  ];
}
