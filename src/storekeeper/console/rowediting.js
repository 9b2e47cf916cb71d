// Editing a store in its row of the list: name and address, with Tab from cell to cell and on to
// the next row.

import { request } from "./api.js";
import { find, h } from "./dom.js";
import { forget, keep, recall } from "./keep.js";
import { me } from "./me.js";
import { notify } from "./notice.js";
import { pending, write } from "./outbox.js";
import { place } from "./route.js";
import { asShown, broken, content, equal, FIELDS, payload } from "./rules.js";
import { words } from "./words.js";

export class RowEditing {
  /** `list` shows the row again when editing ends, and says which one follows. */
  constructor(list) {
    this.list = list;
    this.id = null;
    this.over = null; // what waits for the end of editing
  }

  /**
   * Turn a row's cells into fields; the store is read first, since its own version is what a save
   * is based on.
   */
  async begin(id, field = "name") {
    if (me.scope !== "write") return notify(words.store.readonly(me));
    if (pending(id)) return;
    this.end();
    if (String(id) === place().store) return find(field).focus(); // it is edited there
    this.id = id;
    const { status, data, tag } = await request(`stores/${id}`);
    if (this.id !== id) return;
    if (status !== 200) return this.end();
    const draft = recall(`draft:${id}`);
    [this.base, this.tag] = draft?.base ? [draft.base, draft.tag] : [data, tag];
    const row = this.list.rowOf(id);
    if (!row) return this.end();
    this.inputs = Object.fromEntries(FIELDS.map((one) => [one, this.input(one, draft ?? data)]));
    for (const one of FIELDS) row.querySelector(`.${one}`).replaceChildren(this.inputs[one]);
    row.classList.add("editing");
    row.addEventListener("keydown", this.key);
    row.addEventListener("focusout", this.left);
    this.row = row;
    this.inputs[field].focus();
  }

  input(field, store) {
    const properties = {
      dir: "auto",
      translate: "no",
      autocomplete: "off",
      "aria-label": words.list.cell(words[field], this.id),
      oninput: () => this.typed(),
    };
    const text = asShown(field, store[field]);
    return field === "name"
      ? h("input", { ...properties, value: text })
      : h("textarea", { ...properties, rows: "1" }, text);
  }

  get content() {
    return content({ name: this.inputs.name.value, address: this.inputs.address.value }, this.base);
  }

  typed() {
    const now = this.content;
    for (const field of FIELDS) {
      this.inputs[field].setAttribute("aria-invalid", String(Boolean(broken(field, now[field]))));
    }
    if (equal(now, this.base)) forget(`draft:${this.id}`);
    else {
      keep(`draft:${this.id}`, {
        ...now,
        base: this.base,
        tag: this.tag,
        at: new Date().toISOString(),
      });
    }
  }

  /** Save what is typed; return whether it could be. */
  save() {
    const now = this.content;
    const wrong = FIELDS.find((field) => broken(field, now[field]));
    if (wrong) {
      this.inputs[wrong].focus();
      notify(broken(wrong, now[wrong]));
      return false;
    }
    const { id, tag, base } = this;
    this.end();
    if (!equal(now, base)) write(String(id), payload(now), tag, base);
    return true;
  }

  /** Show the row as it is again; what is typed stays a draft. */
  end() {
    const { id, row } = this;
    [this.id, this.row] = [null, null];
    row?.removeEventListener("focusout", this.left);
    if (row) this.list.refresh(id);
    const { over } = this;
    this.over = null;
    over?.();
  }

  /** Call a function once no row is edited any more. */
  whenOver(call) {
    this.over = call;
  }

  key = async (event) => {
    const { id } = this;
    const isLast = event.target === this.inputs.address;
    const isOn = event.key === "Tab" && isLast && !event.shiftKey;
    event.stopPropagation(); // the list's own keys move among rows
    if (event.key === "Escape") {
      forget(`draft:${id}`);
      this.end();
      this.list.focus(id);
    } else if (event.key === "Enter" && !event.shiftKey) {
      if (this.save()) this.list.focus(id);
    } else if (isOn) {
      if (this.save()) {
        this.list.after(id).then((next) => (next ? this.begin(Number(next)) : this.list.focus(id)));
      }
    } else return;
    event.preventDefault();
  };

  /** The focus went elsewhere: what is valid is saved, the rest stays a draft. */
  left = ({ relatedTarget }) => {
    if (this.row?.contains(relatedTarget) || !document.hasFocus()) return;
    const now = this.content;
    if (FIELDS.some((field) => broken(field, now[field]))) this.end();
    else this.save();
  };
}
