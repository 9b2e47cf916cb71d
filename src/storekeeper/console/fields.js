// The two fields of a store: what is typed, its rules and hints next to it, and a counter of
// characters.

import { send } from "./api.js";
import { debounce, h } from "./dom.js";
import { MAX_NAME } from "./limits.js";
import { asShown, broken, content, FIELDS, hint, size } from "./rules.js";
import { words } from "./words.js";

export class Fields {
  /** `onTyped()` is called when a person changes one. */
  constructor(onTyped) {
    this.inputs = {
      name: h("input", {
        id: "name",
        dir: "auto",
        translate: "no",
        autocomplete: "off",
        "aria-describedby": "name-hint name-count",
      }),
      address: h("textarea", {
        id: "address",
        dir: "auto",
        translate: "no",
        rows: "3",
        "aria-describedby": "address-hint",
      }),
    };
    this.hints = {
      name: h("p", { class: "hint", id: "name-hint" }),
      address: h("p", { class: "hint", id: "address-hint" }),
    };
    this.counter = h("output", { class: "counter", id: "name-count", for: "name" });
    this.nodes = FIELDS.map((field) =>
      h(
        "div",
        { class: "field" },
        h("label", { for: field }, words[field]),
        field === "name" ? this.counter : null,
        this.inputs[field],
        this.hints[field],
      ),
    );
    this.look = debounce(400, () => this.lookForNamesakes());
    for (const input of Object.values(this.inputs)) {
      input.addEventListener("input", () => {
        onTyped();
        this.look();
      });
    }
  }

  /**
   * Show a store's content; `base` is the store as it is without what was typed, `id` its id or
   * "new".
   */
  fill(store, base, id) {
    [this.base, this.id, this.namesake] = [base, id, null];
    for (const field of FIELDS) this.inputs[field].value = asShown(field, store[field]);
  }

  /** What the fields mean. */
  get content() {
    return content({ name: this.inputs.name.value, address: this.inputs.address.value }, this.base);
  }

  /** The first field that breaks a rule. */
  get wrong() {
    const now = this.content;
    return FIELDS.find((field) => broken(field, now[field]));
  }

  /** Draw counter, rules and hints again; a new store's name may be missing until it is saved. */
  draw(showMissing) {
    const now = this.content;
    const count = size(now.name);
    this.counter.textContent = words.store.counter(count, MAX_NAME);
    this.counter.classList.toggle("bad", count > MAX_NAME);
    for (const field of FIELDS) {
      const isBad =
        Boolean(broken(field, now[field])) &&
        (showMissing || this.id !== "new" || Boolean(now[field]));
      this.hints[field].className = `hint ${isBad ? "bad" : ""}`;
      this.hints[field].replaceChildren(
        ...(isBad ? [broken(field, now[field])] : this.advice(field, now[field])),
      );
      this.mark(field, isBad);
    }
  }

  advice(field, value) {
    if (field === "name" && this.namesake) {
      return [
        words.hints.namesake,
        h("a", { href: `?store=${this.namesake}` }, words.store.number(this.namesake)),
      ];
    }
    return [hint(value) ?? (field === "address" && this.id === "new" ? words.store.forever : "")];
  }

  mark(field, isBad) {
    this.inputs[field].setAttribute("aria-invalid", String(isBad));
  }

  lock(isLocked) {
    for (const input of Object.values(this.inputs)) input.readOnly = isLocked;
  }

  async lookForNamesakes() {
    const [id, { name }] = [this.id, this.content];
    let found = null;
    if (name && name !== this.base?.name && !broken("name", name)) {
      const { status, data } = await send(`stores?limit=2&name=${encodeURIComponent(name)}`).catch(
        () => ({}),
      );
      if (this.id !== id || this.content.name !== name) return;
      found = status === 200 ? data.find((store) => String(store.id) !== id)?.id : null;
    }
    if (found === this.namesake) return;
    this.namesake = found;
    this.draw(false);
  }
}
