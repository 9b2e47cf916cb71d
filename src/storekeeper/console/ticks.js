// Rows of the list that a person has ticked, also over several searches, and a file of them.

import { button, h } from "./dom.js";
import { words } from "./words.js";

/** Stores that can be ticked: as many as one export may name. */
export const MAX_TICKS = 1000;

export class Ticks {
  /** `save(format, ids)` saves a file of the stores. */
  constructor(save) {
    this.ids = new Set();
    this.text = h("span");
    const ordered = () => [...this.ids].sort((one, other) => one - other);
    const saving = (format, name) =>
      button(name, () => save(format, ordered()), {
        class: "quiet small",
        "aria-label": words.ticks.export(name),
      });
    this.node = h(
      "span",
      { class: "export", hidden: true },
      this.text,
      saving("csv", "CSV"),
      saving("xlsx", "Excel"),
      button(words.ticks.clear, () => this.clear(), { class: "quiet small" }),
    );
  }

  /** A box for a row. */
  box(id) {
    return h("input", {
      type: "checkbox",
      class: "tick",
      checked: this.ids.has(id),
      tabindex: "-1",
      "aria-label": words.ticks.tick(id),
      onchange: ({ target }) => (target.checked = this.set(id, target.checked)),
    });
  }

  /** Tick a store, or not; return whether it is ticked. */
  set(id, isTicked) {
    if (!isTicked) this.ids.delete(id);
    else if (this.ids.size < MAX_TICKS) this.ids.add(id);
    this.draw();
    return this.ids.has(id);
  }

  draw() {
    this.node.hidden = !this.ids.size;
    this.text.textContent = words.ticks.count(this.ids.size);
  }

  clear() {
    this.ids.clear();
    for (const box of document.querySelectorAll(".tick")) box.checked = false;
    this.draw();
  }
}
