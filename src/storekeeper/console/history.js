// The history of one store: who changed what and when, newest first; each earlier version can be
// brought back.

import { latest, request } from "./api.js";
import { button, h } from "./dom.js";
import { difference, time, who } from "./format.js";
import { words } from "./words.js";

const PAGE = 10;

export class History {
  /** `onRestore(version, at)` takes a version that is to be the current one again. */
  constructor(onRestore) {
    this.onRestore = onRestore;
    this.begin = latest();
    this.items = h("ol", { class: "history" });
    this.more = button(words.history.more, () => this.load(), { class: "small", hidden: true });
    this.node = h(
      "section",
      { hidden: true, "aria-label": words.history.title },
      h("h2", {}, words.history.title),
      this.items,
      this.more,
    );
  }

  /** Show the history of a store, of none for null. */
  async show(id) {
    this.node.hidden = id === null;
    this.id = id;
    if (id === null) return;
    this.oldest = null;
    await this.load();
  }

  async load() {
    const { id, oldest } = this;
    const isLatest = this.begin();
    const { status, data } = await request(
      `changes?store=${id}&order=desc&limit=${PAGE}${oldest ? `&after=${oldest}` : ""}`,
    );
    if (status !== 200 || this.id !== id || !isLatest()) return;
    const items = data.changes.map((change, at) => this.item(change, oldest === null && at === 0));
    if (oldest === null) this.items.replaceChildren(...items);
    else this.items.append(...items);
    this.oldest = data.changes.at(-1)?.seq ?? oldest;
    this.more.hidden = data.changes.length < PAGE || data.changes.at(-1).type === "created";
    this.lock(this.isLocked);
  }

  item(change, isPresent) {
    const restore = button(words.history.restore, () => this.onRestore(change.store, change.at), {
      class: "quiet small",
    });
    return h(
      "li",
      {},
      h("div", { class: "by" }, h("b", {}, who(change)), " ", time(change.at)),
      change.previous ? null : h("div", { class: "label" }, words.history.created),
      difference(change.previous, change.store),
      isPresent ? null : restore,
    );
  }

  /**
   * While there is unsaved text, no version can take its place; with a token that only reads, none
   * is brought back.
   */
  lock(isLocked, isHidden = this.isHidden) {
    [this.isLocked, this.isHidden] = [isLocked, isHidden];
    for (const restore of this.items.querySelectorAll("button")) {
      restore.disabled = isLocked;
      restore.hidden = isHidden;
      restore.title = isLocked ? words.history.locked : "";
    }
  }
}
