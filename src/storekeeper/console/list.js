// The list: a table of real rows, searched as the user types, sorted and filtered; further
// pages come towards the end.

import { cursorOf, feed, isNewer, MAX_PAGE, nextOf, part, request } from "./api.js";
import { button, debounce, h, icon, say } from "./dom.js";
import { Filters, queryOf } from "./filters.js";
import { fold, wordsOf } from "./format.js";
import { Keys } from "./keys.js";
import { nothingFound, nothingYet, storeRow } from "./listed.js";
import { MAX_QUERY } from "./limits.js";
import { notify } from "./notice.js";
import { go, href, place } from "./route.js";
import { RowEditing } from "./rowediting.js";
import { Rows } from "./rows.js";
import { MAX_TICKS, Ticks } from "./ticks.js";
import { words } from "./words.js";

const FIRST = 50; // stores of the first page, then of the others
const PAGE = 200;
const SEARCHING = 400; // milliseconds after which the rows of an earlier search are no longer shown

export class List {
  constructor() {
    this.rows = new Rows(
      (entry) => this.draw(entry),
      () => this.next && !this.loading && this.load(true),
    );
    this.editing = new RowEditing(this);
    this.ticks = new Ticks(async (format, ids) =>
      (await part("./exporting.js")).saveTicked(format, ids),
    );
    this.keys = new Keys((ids) => this.showKeys(ids));
    this.filters = new Filters();
    this.wanted = null;
    this.q = null;
    this.field = h("input", {
      type: "search",
      id: "search",
      placeholder: words.list.search,
      "aria-label": words.list.search,
      autocomplete: "off",
      spellcheck: "false",
      maxlength: String(MAX_QUERY),
      oninput: debounce(150, () =>
        go({ q: this.field.value.trim(), view: "list" }, { replace: true }),
      ),
    });
    this.count = h("p", { class: "found" });
    this.body = this.rows.body;
    this.more = button(words.list.more, () => this.load(true).then((id) => id && this.focus(id)), {
      class: "wide",
      hidden: true,
    });
    this.empty = h("div", { class: "empty", hidden: true });
    this.keyTitle = h("th", { scope: "col", class: "key" }, words.list.key);
    const { id, name } = this.filters.titles;
    const titles = h("tr", {}, id, this.keyTitle, name, h("th", { scope: "col" }, words.address));
    this.table = h(
      "table",
      { class: "stores", hidden: true },
      h("caption", { class: "sr" }, words.list.title),
      h("thead", {}, titles),
      this.body,
    );
    this.node = h(
      "section",
      { class: "list", "aria-label": words.list.title, onkeydown: (event) => this.key(event) },
      this.tools(),
      this.filters.node,
      this.above(),
      this.rows.above,
      this.table,
      this.rows.below,
      this.empty,
      this.more,
    );
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a, input, textarea") && !String(getSelection())) {
        go({ store: row.dataset.id });
      }
    });
    window.addEventListener(
      "scroll",
      debounce(200, () => this.remember()),
      { passive: true },
    );
    for (const event of ["leave", "pagehide"]) {
      window.addEventListener(event, () => this.remember());
    }
  }

  /** The search, and what leads to a new store or an import. */
  tools() {
    const key = h("kbd", { "aria-hidden": "true" }, "/");
    return h(
      "div",
      { class: "tools" },
      h("div", { class: "search" }, icon("search"), this.field, key),
      h("a", { class: "button new", id: "new", href: "?store=new" }, words.list.create),
      h("a", { class: "button", href: "?view=import" }, words.list.import),
    );
  }

  /** What is above the table: how many stores it has, and what to do with them. */
  above() {
    const exporting = (format, name) =>
      button(name, () => this.export(format), { class: "quiet small" });
    return h(
      "div",
      { class: "above" },
      this.count,
      button(words.ticks.all, () => this.tickFound(), { class: "quiet small all" }),
      this.ticks.node,
      h(
        "span",
        { class: "export" },
        h("span", {}, words.list.export),
        exporting("csv", "CSV"),
        exporting("xlsx", "Excel"),
      ),
    );
  }

  /** Show the stores that a place asks for; nothing is asked if those are shown already. */
  async show(wanted, again = false) {
    if (wanted === null) return;
    const { q, sort, bare, twins, since } = wanted;
    this.filters.draw(wanted);
    const asked = JSON.stringify([q, sort, bare, twins, since]);
    if (asked === this.asked && !again) return;
    [this.asked, this.wanted, this.q] = [asked, { q, sort, bare, twins, since }, q];
    this.needles = wordsOf(q);
    if (document.activeElement !== this.field) this.field.value = q;
    await this.load(false);
  }

  /** Whether some stores are left out for another reason than the search. */
  get isFiltered() {
    const { bare, twins, since } = this.wanted;
    return bare || twins || Boolean(since);
  }

  /** Read the first page, or one more; return the id of its first store. */
  async load(more) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const isOther = !more && this.asked !== this.shown;
    const searching = isOther && setTimeout(() => this.searching(), SEARCHING);
    const was = more ? null : history.state?.seen;
    const wanted = more ? PAGE : Math.max(Number(history.state?.rows) || 0, FIRST);
    this.loading = true;
    let response;
    let stores = [];
    try {
      const limit = Math.min(wanted, MAX_PAGE);
      let query = more ? this.following(PAGE) : await queryOf(this.wanted, limit, abort.signal);
      do {
        response = await request(`stores?${query}`, { signal: abort.signal });
        if (response.status !== 200) break;
        stores = stores.concat(response.data.map((store) => ({ store, version: response.tag })));
        this.tag = more || stores.length > response.data.length ? this.tag : response.tag;
        this.next = nextOf(response.headers);
        query = this.next && this.following(Math.min(wanted - stores.length, MAX_PAGE));
      } while (query && stores.length < wanted);
    } catch {
      return null; // another list is wanted
    } finally {
      clearTimeout(searching);
      if (abort === this.abort) this.loading = false;
    }
    if (abort !== this.abort) return null;
    if (!more && !isOther && this.editing.id !== null) {
      this.editing.whenOver(() => this.load(false)); // no row is taken away under the hands
      return null;
    }
    this.shown = this.asked;
    // It is of another history, or too much has changed since.
    if (response.status === 410) return this.load(false);
    if (response.status !== 200) return this.refuse(response.data.message);
    return this.take(stores, response, more, was);
  }

  /** The query of the next page, of another size than the one before it. */
  following(limit) {
    const query = new URLSearchParams(this.next);
    query.set("limit", limit);
    return query;
  }

  /** Show what was read; return the id of the first store. */
  take(stores, response, more, was) {
    if (!more) {
      feed.cursor = cursorOf(this.tag);
      this.editing.end(); // what is typed stays a draft
      this.rows.clear();
      this.keys.clear();
    }
    const before = this.rows.size;
    this.rows.addAll(stores);
    const total = response.headers.get("total-count");
    this.total = total === null ? null : Number(total);
    this.settle();
    if (more) this.rows.follow();
    if (was) this.rows.restore(was);
    this.remember();
    if (!more && this.q) say(this.count.textContent);
    this.keys.read(stores.map(({ store }) => store.id)).catch(() => {});
    return this.rows.ids[before];
  }

  /** Remember in the history where the user is in the list. */
  remember() {
    const seen = this.body.offsetHeight ? this.rows.seen() : null;
    if (seen) {
      history.replaceState(
        { ...history.state, rows: this.rows.size, seen: scrollY > 0 ? seen : null },
        "",
      );
    }
  }

  /** Show again what the user saw when the list was last shown. */
  back() {
    if (!this.body.offsetHeight) return;
    if (history.state?.seen) this.rows.restore(history.state.seen);
    else scrollTo(0, 0);
  }

  /** Show that the rows of a search are on their way. */
  searching() {
    this.editing.end();
    this.rows.clear();
    this.more.hidden = this.empty.hidden = this.table.hidden = true;
    this.count.textContent = this.q ? words.list.searching(this.q) : words.loading;
  }

  /** Tick all stores that are found, also those that were not read yet. */
  async tickFound() {
    while (this.next && this.rows.size <= MAX_TICKS) if ((await this.load(true)) === null) return;
    const isWhole = this.rows.ids.every((id) => this.ticks.set(id, true));
    if (!isWhole) notify(words.ticks.most(MAX_TICKS));
    for (const box of this.body.querySelectorAll(".tick")) {
      box.checked = this.ticks.ids.has(Number(box.closest("tr").dataset.id));
    }
  }

  /** Save what is shown as a file. */
  async export(format) {
    (await part("./exporting.js")).saveShown(format, this.wanted);
  }

  refuse(message) {
    this.rows.clear();
    this.next = undefined;
    this.settle();
    this.count.textContent = message;
  }

  /** Bring count, button and empty states in line with the rows. */
  settle() {
    const count = this.rows.size;
    const isPart = Boolean(this.q) || this.isFiltered;
    this.count.textContent = isPart
      ? words.list.found(count, Boolean(this.next))
      : words.list.count(this.total ?? count);
    this.more.hidden = !this.next;
    this.table.hidden = count === 0;
    this.table.setAttribute("aria-rowcount", String(this.rowCount(isPart)));
    this.node.classList.toggle("bare", !count && !isPart);
    this.node.classList.toggle("filtered", this.isFiltered);
    this.empty.hidden = count > 0;
    if (!count) this.empty.replaceChildren(...(isPart ? this.nothingFound() : nothingYet()));
    this.select(place().store);
  }

  /**
   * How many rows the table would have with all stores, and the titles; -1 if that is not known.
   */
  rowCount(isPart) {
    if (!this.next) return this.rows.size + 1;
    return isPart || this.total === null ? -1 : this.total + 1;
  }

  nothingFound() {
    return nothingFound(this.q, () => {
      this.field.value = "";
      go({ q: "", bare: false, twins: false, since: "" });
      this.field.focus();
    });
  }

  /** Show a store in its row; `version` is an entity tag that it is at least as new as. */
  put(store, version, tag) {
    const entry = this.rows.get(store.id);
    [entry.store, entry.version, entry.mark] = [store, version, tag];
    if (this.editing.id === store.id || !entry.row) return;
    const isFocused = entry.row.contains(document.activeElement);
    this.rows.redraw(store.id);
    if (isFocused) this.focus(store.id);
    if (String(store.id) === place().store) this.select(place().store);
  }

  /** Make the row of a store. */
  draw({ store, mark }) {
    const { id } = store;
    const isSelected = String(id) === place().store;
    const row = storeRow(store, mark, {
      isSelected,
      needles: this.needles,
      link: href({ ...this.wanted, store: id }),
      tick: this.ticks.box(id),
      keys: this.keysOf(id),
    });
    if (isSelected) this.selected = row;
    return row;
  }

  /** The outside numbers of a store; the one that the search names is marked. */
  keysOf(id) {
    return this.keys.of(id).flatMap(({ column, value }, at) => {
      const text = value === this.q.trim() ? h("mark", {}, value) : value;
      return [at ? ", " : null, h("bdi", { title: `${column}: ${value}` }, text)];
    });
  }

  /** Show the outside numbers that came; the column is there as soon as there are any. */
  showKeys(ids) {
    this.table.classList.toggle("keyed", this.keys.columns.size > 0);
    this.keyTitle.textContent =
      this.keys.columns.size === 1 ? [...this.keys.columns][0] : words.list.key;
    this.rows.keepPlace(() => {
      for (const id of ids) {
        this.rows
          .get(id)
          ?.row?.querySelector(".key")
          .replaceChildren(...this.keysOf(id).filter(Boolean));
      }
    });
  }

  /** Take in a change; one of others gets a mark. */
  apply({ type, store, tag: version }, tag) {
    if (this.wanted === null) return;
    const known = this.rows.get(store.id);
    if (known && !isNewer(version, known.version)) {
      if (!tag) this.refresh(store.id); // it is one's own, and its draft is gone
      return;
    }
    const isShown = this.shown === this.asked;
    const created = type === "created";
    if (created && this.total !== null) this.total = Math.max(this.total, store.id);
    if (known) this.put(store, version, tag);
    else if (created && isShown && this.hasRoomFor(store)) {
      this.rows.add({ store, version, mark: tag }, this.wanted.sort !== "id");
    }
    if (known || created) this.keys.readAgain(store.id);
    if (created && isShown) this.settle();
  }

  /**
   * Whether a store that was created belongs to what is shown: at the end, or where the newest come
   * first.
   */
  hasRoomFor(store) {
    const { sort } = this.wanted;
    const hay = fold(`${store.name} ${store.address ?? ""}`);
    const isFound = !this.isFiltered && this.needles.every((needle) => hay.includes(needle));
    return isFound && (["-id", "-changed"].includes(sort) || (sort === "id" && !this.next));
  }

  /** Draw a row again, without its mark: it was seen, or its draft came or went. */
  refresh(id) {
    const known = this.rows.get(Number(id));
    if (known) this.put(known.store, known.version);
  }

  rowOf(id) {
    return this.rows.bring(Number(id));
  }

  select(id) {
    this.selected?.removeAttribute("aria-current");
    (this.selected = this.rows.get(Number(id))?.row)?.setAttribute("aria-current", "true");
  }

  focus(id) {
    const link = this.rows.bring(Number(id))?.querySelector("a");
    (link ?? this.field).focus({ preventScroll: !link });
  }

  /** The id of the store after another one in the list, null at its end. */
  async after(id) {
    const at = this.rows.place(Number(id));
    if (at < 0) return null;
    if (at + 1 === this.rows.size && this.next) await this.load(true);
    return this.rows.ids[at + 1] === undefined ? null : String(this.rows.ids[at + 1]);
  }

  key(event) {
    const row = event.target.closest("tr[data-id]");
    const at = row ? this.rows.place(Number(row.dataset.id)) : -1;
    if (event.key === "F2" && at >= 0) {
      event.preventDefault();
      return this.editing.begin(Number(row.dataset.id));
    }
    if (event.key === " " && at >= 0 && event.target.matches("a")) {
      event.preventDefault();
      return row.querySelector(".tick").click();
    }
    const to = new Map([
      ["ArrowDown", at + 1],
      ["ArrowUp", at - 1],
      ["Home", 0],
      ["End", this.rows.size - 1],
    ]).get(event.key);
    if (
      to === undefined ||
      (at < 0 && (event.target !== this.field || event.key !== "ArrowDown"))
    ) {
      return;
    }
    event.preventDefault();
    if (to < 0) this.field.focus();
    else this.focus(this.rows.ids[Math.min(to, this.rows.size - 1)]);
    if (to >= this.rows.size - 1 && this.next && !this.loading) this.load(true);
  }
}
