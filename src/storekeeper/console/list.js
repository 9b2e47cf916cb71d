// The list: a table of real rows, searched as one types, in order of ids.

import { cursorOf, feed, isNewer, request, send } from "./api.js";
import { button, debounce, download, h, icon, say } from "./dom.js";
import { cut, fold, marked, wordsOf } from "./format.js";
import { recall } from "./keep.js";
import { MAX_QUERY } from "./limits.js";
import { notify } from "./notice.js";
import { go, href, place } from "./route.js";
import { RowEditing } from "./rowediting.js";
import { Ticks } from "./ticks.js";
import { words } from "./words.js";

const PAGE = 50;
const MAX_SHOWN = 200;
const SEARCHING = 400; // milliseconds after which the rows of an earlier search are no longer shown
const FILES = /^(text\/csv|application\/vnd\.openxml)/;

export class List {
  constructor() {
    this.rows = new Map();
    this.editing = new RowEditing(this);
    this.ticks = new Ticks();
    this.q = null;
    this.field = h("input", {
      type: "search", id: "search", placeholder: words.list.search, "aria-label": words.list.search,
      autocomplete: "off", spellcheck: "false", maxlength: String(MAX_QUERY),
      oninput: debounce(150, () => go({ q: this.field.value.trim(), view: "list" }, { replace: true })),
    });
    this.count = h("p", { class: "found" });
    this.body = h("tbody");
    this.more = button(words.list.more(PAGE), () => this.load(true), { class: "wide", hidden: true });
    this.empty = h("div", { class: "empty", hidden: true });
    this.table = h("table", { class: "stores", hidden: true },
      h("caption", { class: "sr" }, words.list.title),
      h("thead", {}, h("tr", {},
        h("th", { scope: "col", class: "num" }, words.id), h("th", { scope: "col" }, words.name),
        h("th", { scope: "col" }, words.address))),
      this.body,
    );
    this.node = h("section", { class: "list", "aria-label": words.list.title, onkeydown: (event) => this.key(event) },
      h("div", { class: "tools" },
        h("div", { class: "search" }, icon("search"), this.field, h("kbd", { "aria-hidden": "true" }, "/")),
        h("a", { class: "button new", id: "new", href: "?store=new" }, words.list.create),
        h("a", { class: "button", href: "?view=import" }, words.list.import)),
      h("div", { class: "above" }, this.count, this.ticks.node,
        h("span", { class: "export" }, h("span", {}, words.list.export),
          button("CSV", () => this.export("csv"), { class: "quiet small" }),
          button("Excel", () => this.export("xlsx"), { class: "quiet small" }))),
      this.table, this.empty, this.more,
    );
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a, input, textarea") && !String(getSelection())) go({ store: row.dataset.id });
    });
  }

  /** Show what a search finds, or all; nothing is asked if that is shown already. */
  async show(q, again = false) {
    if (q === null || (q === this.q && !again)) return;
    this.q = q;
    this.needles = wordsOf(q);
    if (document.activeElement !== this.field) this.field.value = q;
    await this.load(false);
  }

  /** Read a page: the first, or one more. */
  async load(more) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const isOther = !more && this.q !== this.shown;
    const searching = isOther && setTimeout(() => this.searching(), SEARCHING);
    const limit = more ? PAGE : Math.min(Math.max(Number(history.state?.rows) || 0, PAGE), 1000);
    const query = more ? this.next : new URLSearchParams({ limit, ...(this.q && { q: this.q }) });
    let response;
    try {
      response = await request(`stores?${query}`, { signal: abort.signal });
    } catch {
      return; // another search came
    } finally {
      clearTimeout(searching);
    }
    if (abort !== this.abort) return;
    this.shown = this.q;
    if (response.status !== 200) return this.refuse(response.data.message);
    if (!more) {
      feed.cursor = cursorOf(response.tag);
      this.editing.end(); // what is typed stays a draft
      this.rows.clear();
      this.body.replaceChildren();
    }
    const before = this.rows.size;
    for (const store of response.data) this.put(store, response.tag);
    this.next = /\?([^>]*)>; *rel="?next/.exec(response.headers.get("link") ?? "")?.[1];
    const total = response.headers.get("total-count");
    this.total = total === null ? null : Number(total);
    this.settle();
    history.replaceState({ ...history.state, rows: this.rows.size }, "");
    if (more) [...this.body.rows][before]?.querySelector("a").focus();
    else if (this.q) say(this.count.textContent);
  }

  /** Show that the rows of a search are on their way. */
  searching() {
    this.editing.end();
    this.rows.clear();
    this.body.replaceChildren();
    this.more.hidden = this.empty.hidden = this.table.hidden = true;
    this.count.textContent = this.q ? words.list.searching(this.q) : words.loading;
  }

  /** Save what is found as a file. */
  async export(format) {
    say(words.list.exporting);
    const query = new URLSearchParams({ format, ...(format === "csv" && { bom: "true" }), ...(this.q && { q: this.q }) });
    const { status, data, headers } = await send(`export?${query}`, { timeout: 120_000, expects: FILES }).catch(() => ({}));
    if (status !== 200) return notify(data?.message ?? words.notices.failed);
    const named = /filename="([^"]+)"/.exec(headers.get("content-disposition") ?? "");
    download(named?.[1] ?? `stores.${format}`, data);
    const formulas = Number(headers.get("formula-cells"));
    if (formulas) notify(words.list.formulas(formulas));
  }

  refuse(message) {
    this.rows.clear();
    this.body.replaceChildren();
    this.next = undefined;
    this.settle();
    this.count.textContent = message;
  }

  /** Bring count, button and empty states in line with the rows. */
  settle() {
    const count = this.rows.size;
    this.count.textContent = this.q
      ? words.list.found(this.next ? PAGE : count, Boolean(this.next))
      : words.list.count(this.total ?? count);
    this.more.hidden = !this.next;
    this.table.hidden = count === 0;
    this.node.classList.toggle("bare", !count && !this.q);
    this.empty.hidden = count > 0;
    if (!count) this.empty.replaceChildren(...(this.q ? this.nothingFound() : this.nothingYet()));
    this.select(place().store);
  }

  nothingFound() {
    const clear = button(words.list.clear, () => {
      this.field.value = "";
      go({ q: "" });
      this.field.focus();
    });
    return [h("h2", {}, words.list.nothing(this.q)), h("p", {}, words.list.nothingWhy), clear];
  }

  nothingYet() {
    return [
      icon("shop"), h("h2", {}, words.list.empty), h("p", {}, words.list.emptyWhy),
      h("div", { class: "actions" },
        h("a", { class: "button primary", href: "?store=new" }, words.list.first),
        h("a", { class: "button", href: "?view=import" }, words.list.firstImport)),
      h("p", { class: "hint" }, words.list.emptyDemo),
    ];
  }

  /** Show a store in its row, a new one at the end; `version` is an entity tag that it is at least as new as. */
  put(store, version, tag) {
    const old = this.rows.get(store.id);
    if (old && this.editing.id === store.id) return this.rows.set(store.id, { row: old.row, store, version });
    const mark = (text) => marked(text, this.needles);
    const draft = recall(`draft:${store.id}`) ? h("span", { class: "tag warn" }, words.store.unsaved) : null;
    const address = cut(store.address ?? "", MAX_SHOWN);
    const row = h("tr", { "data-id": String(store.id), class: tag ? "fresh" : undefined },
      h("td", { class: "num" }, this.ticks.box(store, version), String(store.id)),
      h("td", { class: "name" },
        h("a", { href: href({ q: this.q, store: store.id }), dir: "auto", translate: "no" }, mark(store.name) || "—"),
        draft, tag ? h("span", { class: "tag ok" }, tag) : null),
      h("td", { class: "address", dir: "auto", translate: "no", title: address.length > 40 && address }, mark(address)),
    );
    const focused = old?.row.contains(document.activeElement);
    if (old) old.row.replaceWith(row);
    else this.body.append(row);
    this.rows.set(store.id, { row, store, version });
    if (focused) this.focus(store.id);
    if (String(store.id) === place().store) this.select(place().store);
  }

  /** Take in a change; one of others gets a mark. */
  apply({ type, store, tag: version }, tag) {
    const known = this.rows.get(store.id);
    if (this.q === null || (known && !isNewer(version, known.version))) return;
    const created = type === "created";
    if (created && this.total !== null) this.total = Math.max(this.total, store.id);
    const hay = fold(`${store.name} ${store.address ?? ""}`);
    const isFound = (this.needles.length || !this.q) && this.needles.every((needle) => hay.includes(needle));
    if (known || (created && isFound && !this.next && this.shown === this.q)) this.put(store, version, tag);
    if (created && this.shown === this.q) this.settle();
  }

  /** Draw a row anew, without its mark: it was seen, or its draft came or went. */
  refresh(id) {
    const known = this.rows.get(Number(id));
    if (known) this.put(known.store, known.version);
  }

  rowOf(id) {
    return this.rows.get(Number(id))?.row;
  }

  select(id) {
    this.selected?.removeAttribute("aria-current");
    (this.selected = this.rows.get(Number(id))?.row)?.setAttribute("aria-current", "true");
  }

  focus(id) {
    const link = this.rows.get(Number(id))?.row.querySelector("a");
    (link ?? this.field).focus({ preventScroll: !link });
  }

  /** The id of the store behind another one in the list, null at its end. */
  async after(id) {
    const row = this.rows.get(Number(id))?.row;
    if (!row) return null;
    if (!row.nextElementSibling && this.next) await this.load(true);
    return row.nextElementSibling?.dataset.id ?? null;
  }

  key(event) {
    const rows = [...this.body.rows];
    const row = event.target.closest("tr");
    const at = rows.indexOf(row);
    if (event.key === "F2" && at >= 0) {
      event.preventDefault();
      return this.editing.begin(Number(row.dataset.id));
    }
    if (event.key === " " && at >= 0 && event.target.matches("a")) {
      event.preventDefault();
      return row.querySelector(".tick").click();
    }
    const to = new Map([["ArrowDown", at + 1], ["ArrowUp", at - 1], ["Home", 0], ["End", rows.length - 1]]).get(event.key);
    if (to === undefined || (at < 0 && (event.target !== this.field || event.key !== "ArrowDown"))) return;
    event.preventDefault();
    if (to < 0) this.field.focus();
    else rows[Math.min(to, rows.length - 1)]?.querySelector("a").focus();
  }
}
