// Decisions on rows whose store others changed too: for each field the list's value, the sheet's,
// or another one.

import { h } from "./dom.js";
import { moment, shown, who } from "./format.js";
import { asShown, broken, FIELDS, valueOf } from "./rules.js";
import { words } from "./words.js";

export class Decisions {
  constructor() {
    this.rows = new Map();
  }

  /** The decided rows, as an import takes them. */
  get sent() {
    return [...this.rows.values()].filter(isWhole).map(({ line, seen, texts, sides }) => {
      const of = (side) => Object.keys(sides).filter((field) => sides[field] === side);
      return { line, seen, ...texts, present: of("present"), row: of("row") };
    });
  }

  /** Whether a row is decided. */
  has(line) {
    return isWhole(this.rows.get(line));
  }

  /**
   * What has been decided of a row so far; a store that was changed again since is to be decided
   * again.
   */
  of({ line, conflict }) {
    const known = this.rows.get(line);
    if (known?.seen === conflict.seen) return known;
    // Reports show long texts cut, so that a side is chosen by its name.
    const row = { line, seen: conflict.seen, fields: conflict.fields, texts: {}, sides: {} };
    this.rows.set(line, row);
    return row;
  }

  /** What a cell of a row in conflict shows; `onDecided()` is called when a person chooses. */
  cell(problem, field, onDecided) {
    const { conflict } = problem;
    if (!conflict.fields.includes(field)) return shown(conflict.present[field], words.none[field]);
    const row = this.of(problem);
    const name = `decide-${problem.line}-${field}`;
    const choose = (value, side) => {
      delete row.texts[field];
      delete row.sides[field];
      if (!broken(field, value)) row[side ? "sides" : "texts"][field] = side ?? value;
      onDecided();
    };
    const option = (title, side) =>
      h(
        "label",
        { class: "decision" },
        h("input", {
          type: "radio",
          name,
          checked: row.sides[field] === side,
          onchange: () => choose(conflict[side][field], side),
        }),
        h("span", { class: "label" }, title),
        h("span", {}, shown(conflict[side][field], words.none[field])),
      );
    return h(
      "div",
      { role: "group", "aria-label": words.decisions.group(words[field], problem.line) },
      option(words.decisions.theirs, "present"),
      option(words.decisions.mine, "row"),
      this.other(field, name, row, choose),
    );
  }

  other(field, name, row, choose) {
    const isOther = field in row.texts;
    const radio = h("input", {
      type: "radio",
      name,
      checked: isOther,
      onchange: () => input.focus(),
    });
    const input = h("input", {
      dir: "auto",
      translate: "no",
      "aria-label": words.decisions.other,
      value: isOther ? asShown(field, row.texts[field]) : "",
      oninput: () => {
        radio.checked = true;
        const value = valueOf(field, input.value);
        input.setAttribute("aria-invalid", String(Boolean(broken(field, value))));
        choose(value);
      },
    });
    return h(
      "label",
      { class: "decision" },
      radio,
      h("span", { class: "label" }, words.decisions.other),
      input,
    );
  }

  /** Decide all rows in one way that have not been decided. */
  decideAll(problems, side) {
    for (const problem of problems) {
      const row = this.of(problem);
      for (const field of FIELDS) {
        if (row.fields.includes(field) && !isDecided(row, field)) row.sides[field] = side;
      }
    }
  }
}

const isDecided = ({ texts, sides }, field) => field in texts || field in sides;

const isWhole = (row) => Boolean(row) && row.fields.every((field) => isDecided(row, field));

/** Who changed the store of a row, and when. */
export const author = ({ conflict }) => words.decisions.author(who(conflict), moment(conflict.at));
