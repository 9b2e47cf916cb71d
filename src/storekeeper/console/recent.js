// Recent changes of the whole list, newest first, down to where the user has last looked.
// What one import changed is one line.

import { cursorOf, epochOf, feed, latest, request, send } from "./api.js";
import { button, debounce, find, h } from "./dom.js";
import { clockTime, day, difference, fold, who, wordsOf } from "./format.js";
import { keepHere, recall } from "./keep.js";
import { me } from "./me.js";
import { own } from "./outbox.js";
import { undoChange, undoGroup } from "./undo.js";
import { number, words } from "./words.js";

const PAGE = 100;
const MANY = 2; // changes of one moment and one name that are shown as one
const LISTED = 20;
const AT_ONCE = 1000; // earlier changes that the filter looks at in one request
const ENOUGH = 50; // found changes after which it waits to be asked for more
const FURTHER = 20; // requests after which it does too

const MAX_COUNT = 99;

function shortCount(count) {
  if (count > MAX_COUNT) return `${MAX_COUNT}+`;
  return count ? number(count) : "";
}

/** How many changes there are since the user has last looked; drawn next to the page's name. */
export const unseen = {
  draw() {
    const [seq, epoch] = (recall("seen") ?? "").split(".");
    const [head, now] = (feed.cursor ?? "").split(".");
    if (!now) return;
    if (epoch !== now) keepHere("seen", feed.cursor);
    const count = epoch === now ? Math.max(0, head - seq) : 0;
    find("unseen").textContent = shortCount(count);
    find("unseen").title = words.recent.unseen(count);
  },
  /**
   * Have this window count from where the browser's latest window was, and by itself after that.
   */
  pin() {
    const seen = recall("seen");
    if (seen) keepHere("seen", seen);
  },
  /** An import of this page, `count` changes up to a version, is seen if all before it was. */
  imported(version, count) {
    const [seq, epoch] = version.split(".");
    const [seen, of] = (recall("seen") ?? "").split(".");
    if (of !== epoch || Number(seen) === seq - count) keepHere("seen", version);
    unseen.draw();
  },
  /** Take changes in: those of this page are seen. */
  take(changes) {
    const [seq, epoch] = (recall("seen") ?? "").split(".");
    const next = changes.find((change) => change.seq === Number(seq) + 1);
    if (next && own.has(next.seq)) {
      keepHere("seen", `${changes.findLast((change) => own.has(change.seq)).seq}.${epoch}`);
    }
    unseen.draw();
  },
};

/** Whether a change is of a person or a store that these words name. */
function fits(change, needles) {
  const { id, name } = change.store;
  const hay = fold(`${who(change)} ${id} ${name} ${change.previous?.name ?? ""}`);
  return needles.every((needle) => hay.includes(needle));
}

const undoing = new Set(); // labels of what is being undone: a second click does nothing

function undoButton(undo, label) {
  const undoOnce = async () => {
    if (undoing.has(label)) return;
    undoing.add(label);
    await undo().finally(() => undoing.delete(label));
  };
  return button(words.undo.undo, undoOnce, { class: "quiet small", "aria-label": label });
}

export class Recent {
  constructor() {
    this.begin = latest();
    this.items = h("ol", { class: "recent" });
    this.lead = h("p", { class: "lead", role: "status" });
    this.filter = h("input", {
      type: "search",
      class: "filter",
      "aria-label": words.recent.filter,
      spellcheck: "false",
      placeholder: words.recent.filterShort,
      autocomplete: "off",
      oninput: () => this.search(),
    });
    this.beginSearch = latest();
    this.searchSoon = debounce(300, () => this.searchFurther());
    // What the filter found in changes before those that are read, and how far it has looked.
    [this.earlier, this.earlierFrom] = [[], null];
    this.open = new Set(); // the groups that are open, by their latest change
    this.more = button(
      words.recent.more,
      () => (this.needles.length ? this.searchFurther() : this.load()),
      { class: "wide", hidden: true },
    );
    this.node = h(
      "section",
      { class: "page", "aria-labelledby": "recent-title" },
      h(
        "div",
        { class: "heading" },
        h("h1", { id: "recent-title" }, words.recent.title),
        this.filter,
      ),
      this.lead,
      this.items,
      this.more,
    );
  }

  async show() {
    document.title = `${words.recent.title} · ${words.title}`;
    [this.changes, this.sizes, this.from, this.seen] = [[], new Map(), null, recall("seen")];
    [this.whole, this.hasGap] = [null, false]; // down to where every change is read
    await this.load();
    if (this.needles.length) this.search();
  }

  async load() {
    const isLatest = this.begin();
    const { status, data } = await request(
      `changes?order=desc&limit=${PAGE}${this.from ? `&after=${this.from}` : ""}`,
    );
    if (status !== 200 || !isLatest()) return;
    const epoch = epochOf(data.next);
    feed.cursor ??= `${data.head}.${epoch}`; // perhaps the list was not read yet
    if (!this.from) {
      this.known = this.seen?.endsWith(epoch) ? Number.parseInt(this.seen, 10) : data.head;
      this.look(`${data.head}.${epoch}`);
    }
    const newest = data.changes[0]?.seq ?? 0;
    // Newer ones came while the page was on its way.
    if (!this.from) this.changes = this.changes.filter(({ seq }) => seq > newest);
    this.changes.push(...data.changes);
    this.from = data.changes.at(-1)?.seq;
    if (!this.hasGap) this.whole = this.from;
    this.more.hidden = data.changes.length < PAGE || this.from === 1;
    const last = this.groups().at(-1);
    if (!this.more.hidden && last?.length >= MANY) await this.measure(last, isLatest);
    if (isLatest()) this.draw();
  }

  look(cursor) {
    keepHere("seen", cursor);
    unseen.draw();
  }

  /**
   * Find out how large a group is that goes beyond the page, from the version of the moment before
   * it.
   */
  async measure(group, isLatest) {
    const before = new Date(Date.parse(group[0].at) - 1).toISOString();
    const { status, tag } = await send(`stores?limit=1&at=${before}`, { method: "HEAD" }).catch(
      () => ({}),
    );
    if (status !== 200 || !isLatest()) return;
    const first = Number.parseInt(cursorOf(tag), 10) + 1;
    this.sizes.set(group[0].at, group[0].seq - first + 1);
    this.hasGap ||= first < this.from;
    this.from = first;
    this.more.hidden = first === 1;
  }

  /** Take in changes as they happen. */
  take(changes) {
    if (!this.node.isConnected) return;
    const known = this.changes[0]?.seq ?? 0;
    this.changes.unshift(...changes.filter(({ seq }) => seq > known).toReversed());
    this.look(feed.cursor);
    this.draw();
  }

  /** Changes of one moment and one name belong together, as an import writes them. */
  groups(changes = this.changes) {
    const groups = [];
    for (const change of changes) {
      const last = groups.at(-1);
      const isOfIt =
        last &&
        last[0].at === change.at &&
        last[0].by === change.by &&
        last[0].user === change.user;
      if (isOfIt) last.push(change);
      else groups.push([change]);
    }
    return groups.flatMap((group) =>
      group.length < MANY ? group.map((change) => [change]) : [group],
    );
  }

  /** The words of the filter. */
  get needles() {
    return wordsOf(this.filter.value);
  }

  /** The changes that the filter lets through. */
  get filtered() {
    const { needles } = this;
    if (!needles.length) return this.changes;
    return this.changes
      .filter((change) => change.seq >= this.whole && fits(change, needles))
      .concat(this.earlier);
  }

  /** Show what fits of the changes that are read, and look for it in all earlier ones. */
  search() {
    this.beginSearch(); // what an earlier text finds from now on is dropped
    [this.earlier, this.earlierFrom] = [[], this.whole];
    this.draw();
    if (this.needles.length) this.searchSoon();
  }

  /** Look at earlier changes until enough are found; the button continues from there. */
  async searchFurther() {
    const isLatest = this.beginSearch();
    const { needles } = this;
    const most = this.earlier.length + ENOUGH;
    for (
      let asked = 0;
      this.earlierFrom > 1 && asked < FURTHER && this.earlier.length < most;
      asked++
    ) {
      const { status, data } = await request(
        `changes?order=desc&limit=${AT_ONCE}&after=${this.earlierFrom}`,
      );
      if (status !== 200 || !isLatest()) return;
      this.earlier.push(...data.changes.filter((change) => fits(change, needles)));
      this.earlierFrom = data.changes.at(-1)?.seq ?? 1;
      this.draw();
    }
  }

  draw() {
    const focused = document.activeElement?.getAttribute?.("href");
    const fresh = Math.max(0, (this.changes[0]?.seq ?? 0) - this.known);
    const shown = this.filtered;
    this.lead.textContent = fresh ? words.recent.fresh(fresh) : words.recent.nothing;
    const isFiltered = this.needles.length > 0;
    const from = isFiltered ? this.earlierFrom : this.from;
    if (isFiltered) {
      this.lead.textContent = words.recent.filtered(
        shown.length,
        (this.changes[0]?.seq ?? 0) - (from ?? 1) + 1,
      );
    }
    this.more.hidden = !(from > 1);
    const items = [];
    let [date, isSeen] = ["", fresh === 0];
    for (const group of this.groups(shown)) {
      if (!isSeen && group[0].seq <= this.known) {
        isSeen = true;
        items.push(h("li", { class: "divider" }, words.recent.seen));
        date = "";
      }
      if (day(group[0].at) !== date) {
        items.push(h("li", { class: "day" }, h("h2", {}, (date = day(group[0].at)))));
      }
      items.push(group.length === 1 ? this.item(group[0]) : this.bundle(group));
    }
    this.items.replaceChildren(...items);
    if (focused) this.items.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  item(change) {
    const { id, name } = change.store;
    return h(
      "li",
      { class: "entry" },
      clockTime(change.at),
      h(
        "div",
        {},
        h(
          "p",
          {},
          h("b", {}, who(change)),
          ` ${change.previous ? words.recent.changed : words.recent.created} `,
          h("a", { href: `?store=${id}`, dir: "auto", translate: "no" }, name),
          " ",
          h("span", { class: "id" }, words.store.number(id)),
        ),
        change.previous ? difference(change.previous, change.store) : null,
      ),
      change.previous && me.scope === "write" ? this.undo(change) : null,
    );
  }

  undo(change) {
    const label = `${words.undo.undo}: ${change.store.name}`;
    return undoButton(() => undoChange(change), label);
  }

  bundle(group) {
    const size = this.sizes.get(group[0].at) ?? group.length;
    const created = group.filter((change) => !change.previous).length;
    const [last, epoch] = [group[0].seq, epochOf(feed.cursor)];
    const undo = () => undoGroup(`${last - size + 1}.${epoch}`, `${last}.${epoch}`);
    const canUndo = me.scope === "write" && created < size && !this.filter.value.trim();
    const counts =
      size === group.length
        ? words.recent.counts(created, size - created)
        : words.recent.atOnce(size);
    return h(
      "li",
      { class: "entry" },
      clockTime(group[0].at),
      h(
        "details",
        {
          open: this.open.has(group[0].seq),
          ontoggle: (event) =>
            event.target.open ? this.open.add(group[0].seq) : this.open.delete(group[0].seq),
        },
        h("summary", {}, h("b", {}, who(group[0])), ` ${counts}`),
        h(
          "ul",
          {},
          group
            .slice(0, LISTED)
            .map(({ store, previous }) =>
              h(
                "li",
                {},
                h("a", { href: `?store=${store.id}`, dir: "auto", translate: "no" }, store.name),
                " ",
                h("span", { class: "id" }, words.store.number(store.id)),
                previous ? difference(previous, store) : null,
              ),
            ),
          size > LISTED ? h("li", { class: "label" }, words.recent.others(size - LISTED)) : null,
        ),
      ),
      canUndo ? undoButton(undo, `${words.undo.undo}: ${counts}`) : null,
    );
  }
}
