// Rows of the list that a person has ticked, also over several searches, and a file of them.

import { button, download, h } from "./dom.js";
import { cursorOf } from "./api.js";
import { words } from "./words.js";

const COLUMNS = ["id", "name", "address", "version"];
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export class Ticks {
  constructor() {
    this.stores = new Map();
    this.text = h("span");
    this.node = h("span", { class: "export", hidden: true }, this.text,
      button("CSV", () => this.save(), { class: "quiet small", "aria-label": words.ticks.export }),
      button(words.ticks.clear, () => this.clear(), { class: "quiet small" }));
  }

  /** A box for a row. */
  box(store, version) {
    if (this.stores.has(store.id)) this.stores.set(store.id, { store, version });
    return h("input", { type: "checkbox", class: "tick", checked: this.stores.has(store.id), tabindex: "-1",
      "aria-label": words.ticks.tick(store.id), onchange: (event) => this.set(store, version, event.target.checked) });
  }

  set(store, version, isTicked) {
    if (isTicked) this.stores.set(store.id, { store, version });
    else this.stores.delete(store.id);
    this.draw();
  }

  draw() {
    this.node.hidden = !this.stores.size;
    this.text.textContent = words.ticks.count(this.stores.size);
  }

  clear() {
    this.stores.clear();
    for (const box of document.querySelectorAll(".tick")) box.checked = false;
    this.draw();
  }

  /** Save the ticked stores as a file that can be imported again: each with the version that it was read from. */
  save() {
    const stores = [...this.stores.values()].sort((one, other) => one.store.id - other.store.id);
    const lines = stores.map(({ store, version }) => [String(store.id), store.name, store.address ?? "", cursorOf(version)]);
    const text = [COLUMNS, ...lines].map((cells) => cells.map(quoted).join(",")).join("\r\n");
    download("stores-ticked.csv", new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }));
  }
}
