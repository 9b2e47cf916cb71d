// One store: its fields, edited in place; and the form of a new one, which is the same.

import { isNewer, latest, part, request } from "./api.js";
import { button, h, icon, say } from "./dom.js";
import { Fields } from "./fields.js";
import { time, who } from "./format.js";
import { History } from "./history.js";
import { forget, keep, recall } from "./keep.js";
import { me } from "./me.js";
import { drop, pending, watch, write } from "./outbox.js";
import { go } from "./route.js";
import { equal, payload } from "./rules.js";
import { askForToken } from "./token.js";
import { words } from "./words.js";

const NEW = { name: "", address: null };

export class Store {
  /** `list` says which store comes next, and shows which one has unsaved text. */
  constructor(list) {
    this.list = list;
    this.id = null;
    this.begin = latest();
    this.title = h("h1", { tabindex: "-1" });
    this.label = h("span", { class: "id" });
    this.mark = h("span", { class: "tag warn", hidden: true }, words.store.unsaved);
    this.note = h("div", { class: "note", role: "status", hidden: true });
    this.fields = new Fields(() => this.typed());
    this.saves = h("button", { class: "primary", type: "submit" });
    this.next = button("", () => this.save(true));
    this.discards = button(words.store.discard, () => this.discard(), {
      class: "quiet",
      hidden: true,
    });
    this.status = h("p", { class: "status", role: "status" });
    this.mayNot = h("p", { class: "may-not", hidden: true });
    this.actions = h("div", { class: "actions" }, this.saves, this.next, this.discards);
    me.listeners.add(() => this.lock(Boolean(this.id && pending(this.id))));
    this.form = h(
      "form",
      { novalidate: true, onsubmit: (event) => this.submit(event) },
      this.fields.nodes,
      this.actions,
      this.mayNot,
      this.status,
    );
    this.history = new History((version, at) => this.restore(version, at));
    this.node = h(
      "aside",
      { class: "store", hidden: true, onkeydown: (event) => this.key(event) },
      h(
        "div",
        { class: "title" },
        h(
          "a",
          { class: "button quiet square back", href: "./", "aria-label": words.store.back },
          icon("back"),
        ),
        this.title,
        this.label,
        this.mark,
        button(icon("close"), () => this.leave(), {
          class: "quiet square close",
          "aria-label": words.close,
        }),
      ),
      this.form,
      this.note,
      this.history.node,
    );
    this.back = this.node.querySelector(".back");
    this.back.addEventListener("click", (event) => {
      event.preventDefault();
      this.leave();
    });
  }

  submit(event) {
    event.preventDefault();
    this.save(false);
  }

  leave() {
    const id = this.id;
    go({ store: null });
    this.list.focus(id);
  }

  key(event) {
    const inAddress = event.target === this.fields.inputs.address;
    if (event.key === "Escape") this.leave();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.save(true);
    else if (event.key === "Enter" && inAddress && !event.shiftKey) this.save(false);
    else return;
    event.preventDefault();
  }

  /** Show a store, "new", or none (null). */
  async open(id, focus = true) {
    if (id === this.id) return;
    this.unwatch?.();
    this.isOpen = this.begin();
    const left = this.id;
    [this.id, this.base, this.tag, this.after] = [id, null, null, false];
    this.list.refresh(left);
    this.node.hidden = id === null;
    if (id === null) return;
    this.isNew = id === "new";
    this.unwatch = watch(id, (state, details) => this.follow(state, details));
    this.clear();
    if (this.isNew) this.show(NEW, null);
    else if (!(await this.read(id))) return;
    this.list.refresh(id);
    this.history.show(this.isNew ? null : id);
    if (focus) {
      (matchMedia("(max-width: 820px)").matches && !this.isNew
        ? this.title
        : this.fields.inputs.name
      ).focus();
    }
  }

  clear() {
    this.tell(null);
    this.status.textContent = "";
    this.form.hidden = this.mark.hidden = true;
    this.title.textContent = this.isNew ? words.store.create : words.loading;
    this.title.translate = true;
    this.label.textContent = this.isNew ? "" : words.store.number(this.id);
    this.node.setAttribute(
      "aria-label",
      this.isNew ? words.store.create : words.store.number(this.id),
    );
    this.saves.textContent = this.isNew ? words.store.createIt : words.store.save;
    this.next.textContent = this.isNew ? words.store.createNext : words.store.saveNext;
    this.history.show(null);
  }

  /** Read the store; return whether it is there and still wanted. */
  async read(id) {
    const { isOpen } = this;
    const { status, data, tag } = await request(`stores/${encodeURIComponent(id)}`);
    if (!isOpen()) return false; // another store was opened
    if (status === 200) return this.show(data, tag) ?? true;
    this.title.textContent = status === 404 ? words.store.missing(id) : words.store.number(id);
    this.tell("warn", status === 404 ? words.store.missingWhy : data.message);
    return false;
  }

  /** Read the store again after changes that the feed has left out. */
  async readAgain() {
    const { id, isOpen } = this;
    if (id === null || this.isNew || this.form.hidden) return;
    const { status, data, tag } = await request(`stores/${encodeURIComponent(id)}`);
    if (status === 200 && isOpen()) this.changed({ store: data, tag });
  }

  /** Fill the form: with the store, or with what was typed and not saved. */
  show(store, tag) {
    [this.base, this.tag] = [store, tag];
    this.form.hidden = false;
    const waiting = pending(this.id);
    const draft = waiting
      ? { ...NEW, ...waiting.payload, base: waiting.base, tag: waiting.tag }
      : recall(`draft:${this.id}`);
    if (draft && (waiting || !equal(draft, store))) {
      if (draft.base) [this.base, this.tag] = [draft.base, draft.tag];
      this.fill(draft);
      if (!waiting) this.tell("info", words.store.draft, draft.at);
      if (!waiting && !this.isNew && draft.tag !== tag && !equal(draft.base, store)) {
        this.tell("warn", words.store.changed(null));
      }
    } else {
      if (draft) forget(`draft:${this.id}`);
      this.fill(store);
    }
    this.lock(Boolean(waiting));
    if (waiting) this.follow("repeating");
  }

  fill(store) {
    this.fields.fill(store, this.base, this.id);
    this.update();
  }

  get isDirty() {
    return Boolean(this.base) && !equal(this.fields.content, this.isNew ? NEW : this.base);
  }

  typed() {
    this.status.textContent = "";
    if (this.isDirty) {
      keep(`draft:${this.id}`, {
        ...this.fields.content,
        base: this.base,
        tag: this.tag,
        at: new Date().toISOString(),
      });
    } else forget(`draft:${this.id}`);
    this.update();
  }

  /** Bring title, hints and buttons in line with the fields. */
  update(showMissing = false) {
    this.title.textContent = this.isNew ? words.store.create : this.base.name;
    this.title.translate = this.isNew;
    document.title = `${this.title.textContent} · ${words.title}`;
    this.fields.draw(showMissing);
    const dirty = this.isDirty;
    this.mark.hidden = !dirty;
    this.discards.hidden = !dirty;
    this.history.lock(dirty);
  }

  /** Save what is typed; then open the next store, or a further new one. */
  save(andNext) {
    if (this.form.hidden || this.actions.hidden || pending(this.id)) return;
    this.update(true);
    const { wrong } = this.fields;
    if (wrong) {
      this.fields.inputs[wrong].focus();
      return say(this.fields.hints[wrong].textContent);
    }
    this.after = andNext;
    if (this.isDirty || this.isNew) {
      write(this.id, payload(this.fields.content), this.tag, this.base);
    } else this.saved();
  }

  /** Follow a write on its way. */
  follow(state, details) {
    const isUnder = ["saving", "repeating", "waiting", "token"].includes(state);
    this.lock(isUnder);
    this.status.className = `status ${state === "waiting" || state === "token" ? "warn" : ""}`;
    this.status.replaceChildren(isUnder ? words.store[state] : "");
    if (state === "token") {
      this.status.append(
        " ",
        button(words.token.give, () => askForToken(), { class: "small" }),
      );
    }
    if ((state === "waiting" || state === "token") && !(this.isNew && details.unknown)) {
      this.status.append(
        " ",
        button(words.store.stop, () => drop(this.id), { class: "small" }),
      );
    }
    if (state === "saved" && this.isNew) this.created(details);
    else if (state === "saved") this.saved(details);
    if (state === "conflict") this.resolve(details);
    if (state === "refused") this.refuse(details);
    if (state === "dropped") this.typed();
  }

  /** Let no one type while a write is under way, or with a token that only reads. */
  lock(isLocked) {
    const mayWrite = me.scope === "write";
    this.fields.lock(isLocked || !mayWrite);
    this.actions.hidden = !mayWrite;
    this.mayNot.hidden = mayWrite;
    this.mayNot.replaceChildren(
      words.store.readonly(me),
      " ",
      button(words.token.give, () => askForToken(me.name ? "readonly" : "token"), {
        class: "small",
      }),
    );
    this.history.lock(this.isDirty, !mayWrite);
    this.form.setAttribute("aria-busy", String(isLocked));
    this.saves.disabled = this.next.disabled = this.discards.disabled = isLocked;
  }

  created({ store }) {
    say(words.store.created(store.id));
    if (!this.after) return go({ store: String(store.id) }, { replace: true });
    this.fill(NEW);
    this.tell("good", words.store.created(store.id));
    this.fields.inputs.name.focus();
  }

  async saved(details) {
    if (details) [this.base, this.tag] = [details.store, details.tag];
    this.tell(null);
    this.fill(this.base);
    this.status.className = "status good";
    this.status.replaceChildren(icon("check"), details ? words.store.saved : words.store.same);
    this.list.refresh(this.id);
    if (details) this.history.show(this.id);
    if (!this.after) return;
    this.after = false;
    const { isOpen } = this;
    const next = await this.list.after(this.id);
    if (!isOpen()) return;
    if (next) go({ store: next }, { replace: true });
    else this.status.append(` ${words.store.last}`);
  }

  refuse({ message, keys }) {
    this.status.className = "status bad";
    this.status.textContent = words.store.refused(message);
    const named = Object.keys(this.fields.inputs).filter((field) => keys.includes(field));
    for (const field of named) this.fields.mark(field, true);
    if (named.length) this.fields.inputs[named[0]].focus();
  }

  async resolve({ payload: sent, base }) {
    const { id, isOpen } = this;
    const { status, data: theirs, tag } = await request(`stores/${id}`);
    if (status !== 200 || !isOpen()) return;
    const mine = { ...NEW, ...sent };
    const { data } = await request(`changes?store=${id}&order=desc&limit=1`);
    const { resolveConflict } = await part("./conflict.js");
    if (!isOpen()) return;
    const merged = equal(theirs, base)
      ? mine
      : await resolveConflict({ id, base, theirs, mine, change: data.changes?.[0] });
    if (!isOpen()) return;
    if (!merged) return this.fields.inputs.name.focus();
    [this.base, this.tag] = [theirs, tag];
    this.fill(merged);
    this.typed();
    if (this.isDirty) write(id, payload(merged), tag, theirs);
    else this.saved();
  }

  /** Take in a change of this store by another client; what is typed is never touched. */
  changed(change) {
    if (this.isNew || this.form.hidden || pending(this.id) || !isNewer(change.tag, this.tag)) {
      return;
    }
    if (equal(change.store, this.base)) return;
    if (this.isDirty) return this.tell("warn", words.store.changed(who(change)), change.at);
    [this.base, this.tag] = [change.store, change.tag];
    this.fill(this.base);
    this.status.textContent = "";
    this.tell("info", words.store.updated(who(change)), change.at);
    this.history.show(this.id);
  }

  restore(version, at) {
    this.fill(version);
    this.typed();
    this.tell("info", words.store.restored, at);
    this.saves.focus();
  }

  discard() {
    forget(`draft:${this.id}`);
    const { id } = this;
    this.id = null;
    this.open(id);
  }

  tell(kind, text = "", at = null) {
    this.note.hidden = !kind;
    this.note.className = `note ${kind}`;
    this.note.replaceChildren(h("span", {}, text), ...(at ? [" (", time(at), ")"] : []));
  }
}
