// The rows of the list that are in the page: a window on all that were read, which follows what the
// user sees, so that the page has at most 300 of them, however long the list is. Empty space stands
// for the others.

import { h } from "./dom.js";

export const MAX_ROWS = 300;
const STEP = 100; // rows by which the window moves
const NEAR = 1200; // pixels from an end of the window at which it moves

export class Rows {
  /** `draw(entry)` makes the row of a store; `onEnd()` is called near the end of what was read. */
  constructor(draw, onEnd) {
    [this.draw, this.onEnd] = [draw, onEnd];
    this.entries = new Map();
    this.ids = [];
    this.body = h("tbody");
    this.above = h("div", { class: "space" });
    this.below = h("div", { class: "space" });
    [this.first, this.end, this.height] = [0, 0, 0];
    window.addEventListener("scroll", () => this.follow(), { passive: true });
    window.addEventListener("resize", () => this.follow());
  }

  get size() {
    return this.ids.length;
  }

  get(id) {
    return this.entries.get(id);
  }

  clear() {
    this.entries.clear();
    this.ids = [];
    [this.first, this.end] = [0, 0];
    this.body.replaceChildren();
    this.space();
  }

  /** Add a store after the others, or before them. */
  add(entry, inFront = false) {
    this.places = null;
    this.entries.set(entry.store.id, entry);
    if (inFront) this.ids.unshift(entry.store.id);
    else this.ids.push(entry.store.id);
    if (inFront && this.first > 0) [this.first, this.end] = [this.first + 1, this.end + 1];
    else this.show(this.first);
  }

  /** Add the stores of a page after the others. */
  addAll(entries) {
    this.places = null;
    for (const entry of entries) {
      if (!this.entries.has(entry.store.id)) this.ids.push(entry.store.id);
      this.entries.set(entry.store.id, entry);
    }
    this.show(this.first);
  }

  /** Draw the row of a store again, if it is in the page. */
  redraw(id) {
    const entry = this.entries.get(id);
    if (!entry?.row) return;
    const row = this.make(entry, this.place(id), entry.row);
    entry.row.replaceWith(row);
    entry.row = row;
  }

  /** The place of a store among all that were read, -1 for one that was not. */
  place(id) {
    this.places ??= new Map(this.ids.map((one, at) => [one, at]));
    return this.places.get(id) ?? -1;
  }

  /** Have the row of a store in the page; return it. */
  bring(id) {
    const at = this.place(id);
    if (at < 0) return null;
    if (at < this.first || at >= this.end) this.show(at - STEP);
    return this.entries.get(id).row;
  }

  make(entry, at) {
    const row = this.draw(entry);
    row.setAttribute("aria-rowindex", String(at + 2)); // the first row has the titles
    return row;
  }

  /** Show the rows from a place on, and keep what the user sees where it is. */
  show(wanted) {
    const first = Math.max(0, Math.min(wanted, this.size - MAX_ROWS));
    const end = Math.min(this.size, first + MAX_ROWS);
    this.keepPlace(() => this.fill(first, end), first, end);
  }

  fill(first, end) {
    for (let at = this.first; at < this.end; at++) if (at < first || at >= end) this.remove(at);
    const before = [];
    for (let at = first; at < end; at++) {
      const entry = this.entries.get(this.ids[at]);
      const isThere = Boolean(entry.row);
      if (!isThere) entry.row = this.make(entry, at);
      if (!isThere && at < this.first) before.push(entry.row);
      else if (!isThere) this.body.append(entry.row);
    }
    this.body.prepend(...before);
    [this.first, this.end] = [first, end];
    this.space();
  }

  /**
   * Call what changes rows; those that the user sees, and that stay, are in their places
   * afterwards.
   */
  keepPlace(change, first = this.first, end = this.end) {
    const anchor = this.anchor(first, end);
    const top = anchor?.getBoundingClientRect().top;
    change();
    if (anchor) scrollBy(0, anchor.getBoundingClientRect().top - top);
  }

  remove(at) {
    const entry = this.entries.get(this.ids[at]);
    const { row } = entry;
    entry.row = null; // what loses the focus by this must find no row to draw again
    row?.remove();
  }

  /** The first row that the user sees and that stays. */
  anchor(first, end) {
    for (let at = Math.max(first, this.first); at < Math.min(end, this.end); at++) {
      const row = this.entries.get(this.ids[at])?.row;
      if (row && row.getBoundingClientRect().bottom > 0) return row;
    }
    return null;
  }

  /** Give the rows that are not in the page the space that they would take. */
  space() {
    const count = this.body.rows.length;
    if (count && this.body.offsetHeight) this.height = this.body.offsetHeight / count;
    this.above.style.height = `${this.first * this.height}px`;
    this.below.style.height = `${(this.size - this.end) * this.height}px`;
  }

  /**
   * Move the window to where the user has scrolled; near the end ask for more, also if the window
   * has just come there: who is at the end of the page cannot scroll further.
   */
  follow() {
    const { top, bottom, height } = this.body.getBoundingClientRect();
    if (!height) return;
    if (top > innerHeight + NEAR || bottom < -NEAR) {
      const seen = -this.above.getBoundingClientRect().top / this.height;
      this.show(Math.round(seen) - STEP);
    } else if (this.isNearEnd) this.goOn();
    else if (top > -NEAR && this.first > 0) this.show(this.first - STEP);
    if (this.isNearEnd && this.end === this.size) this.onEnd();
  }

  /** Whether the rows that are in the page end near what the user sees. */
  get isNearEnd() {
    return this.body.getBoundingClientRect().bottom - innerHeight < NEAR;
  }

  /** Move the window on, as far as no row goes that the user sees. */
  goOn() {
    const isLeft = () => this.body.rows[STEP]?.getBoundingClientRect().top <= 0;
    while (this.isNearEnd && this.end < this.size && isLeft()) this.show(this.first + STEP);
  }

  /** The first row that the user sees, and where it is in the window. */
  seen() {
    const row = [...this.body.rows].find((one) => one.getBoundingClientRect().bottom > 0);
    return row
      ? { id: Number(row.dataset.id), y: Math.round(row.getBoundingClientRect().top) }
      : null;
  }

  /** Scroll to where a store was seen. */
  restore({ id, y }) {
    const row = this.bring(id);
    if (row) scrollBy(0, row.getBoundingClientRect().top - y);
  }
}
