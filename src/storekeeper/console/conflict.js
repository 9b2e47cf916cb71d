// The dialog after a 412: another client saved this store since it was opened. What only one side
// changed is merged beforehand; for each clash there is one choice, and one Save.

import { ask, h } from "./dom.js";
import { difference, shown, time, who } from "./format.js";
import { asShown, broken, FIELDS, valueOf } from "./rules.js";
import { words } from "./words.js";

/** Return what the store is to be, or null if the person continues to edit. */
export async function resolveConflict({ id, base, theirs, mine, change }) {
  const fields = FIELDS.map((field) => new Field(field, base[field], theirs[field], mine[field]));
  const clashes = fields.filter((field) => field.isClash);
  const submit = (event) => {
    if (event.submitter?.value !== "save") return;
    const open = clashes.find((field) => !field.check());
    if (open) event.preventDefault();
  };
  const author = change ? who(change) : words.someone;
  const when = change ? [" ", words.conflict.when, " ", time(change.at), "."] : null;
  const lead = [words.conflict.choose, when];
  const closed = await ask(
    { title: words.conflict.title(author, id), lead, onsubmit: submit, onTitle: true, class: null },
    fields.map((field) => field.node),
    h(
      "div",
      { class: "actions end" },
      h("button", { class: "quiet", value: "back" }, words.conflict.back),
      h("button", { class: "primary", value: "save" }, words.store.save),
    ),
  );
  if (closed !== "save") return null;
  return Object.fromEntries(fields.map((field) => [field.name, field.result]));
}

class Field {
  constructor(name, before, theirs, mine) {
    Object.assign(this, { name, before, theirs, mine });
    this.isClash = theirs !== before && mine !== before && theirs !== mine;
    this.merged = mine === before ? theirs : mine;
    this.node = this.isClash ? this.choices() : this.agreed();
  }

  get result() {
    if (!this.isClash) return this.merged;
    const choice = this.node.querySelector("input[type=radio]:checked")?.value;
    if (choice !== "other") return this[choice];
    return valueOf(this.name, this.other.value);
  }

  /** Who changed the field, of those who agree. */
  get side() {
    const { before, theirs, mine } = this;
    if (theirs === before && mine === before) return "same";
    if (mine === before) return "theirs";
    return theirs === before ? "mine" : "both";
  }

  /** What a field becomes that only one side changed, or both alike, or neither. */
  agreed() {
    const { name, before, side } = this;
    const value =
      side === "same" ? shown(before) : difference({ [name]: before }, { [name]: this.merged });
    return h(
      "div",
      { class: "merged" },
      h("h2", {}, words[name]),
      h("div", {}, value),
      h("span", { class: side === "same" ? "tag" : "tag ok" }, words.conflict.sides[side]),
    );
  }

  choices() {
    const { name } = this;
    const label = `${name}-other`;
    const text = asShown(name, this.mine);
    this.other =
      name === "name"
        ? h("input", { value: text, dir: "auto", translate: "no", "aria-labelledby": label })
        : h(
            "textarea",
            { rows: "2", dir: "auto", translate: "no", "aria-labelledby": label },
            text,
          );
    const choose = () => (this.node.querySelector("[value=other]").checked = true);
    this.other.addEventListener("input", choose);
    this.problem = h("p", { class: "hint bad", id: `${name}-problem`, role: "alert" });
    const option = (value, title, content) =>
      h(
        "label",
        { class: "choice" },
        h("input", {
          type: "radio",
          name: `choose-${name}`,
          value,
          "aria-describedby": `${name}-problem`,
        }),
        h("span", { class: "label", id: value === "other" ? label : undefined }, title),
        content,
      );
    return h(
      "fieldset",
      { class: "clash" },
      h("legend", {}, words[name]),
      h(
        "div",
        { class: "before" },
        h("span", { class: "label" }, words.conflict.before),
        shown(this.before),
      ),
      option("theirs", words.conflict.theirs, h("span", { class: "value" }, shown(this.theirs))),
      option("mine", words.conflict.mine, h("span", { class: "value" }, shown(this.mine))),
      option("other", words.conflict.other, this.other),
      this.problem,
    );
  }

  /** Return whether the choice is valid; if not, say what is missing, and lead there. */
  check() {
    const chosen = this.node.querySelector("input[type=radio]:checked");
    const problem = chosen ? broken(this.name, this.result) : words.conflict.missing;
    this.problem.textContent = problem ?? "";
    if (problem) (chosen ? this.other : this.node.querySelector("input")).focus();
    return !problem;
  }
}
