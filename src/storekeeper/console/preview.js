// What an import would do, row by row: what is wrong first; the counts filter.

import { author } from "./decisions.js";
import { button, download, h } from "./dom.js";
import { cut, shown } from "./format.js";
import { number, words } from "./words.js";

const LISTED = 200;
const KINDS = ["bad", "conflicts", "created", "replaced", "unchanged", "missing"];
const TAGS = { bad: "bad", conflicts: "warn", created: "ok", replaced: "" };
const MAX_SHOWN = 60;

export class Preview {
  /** `onDecided()` is called when a person decides on a row in conflict. */
  constructor(report, reading, onDecided) {
    [this.report, this.reading, this.onDecided] = [report, reading, onDecided];
    const wrong = report.problems
      .filter(({ reason }) => reason !== "cut")
      .map((problem) => ({
        ...problem,
        kind: problem.reason === "conflict" ? "conflicts" : "bad",
      }));
    const right = report.changes.map((change) => ({
      ...change,
      kind: change.old ? "replaced" : "created",
    }));
    const order = (one, other) =>
      KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind) || one.line - other.line;
    this.rows = [...wrong, ...right].sort(order);
    this.body = h("tbody");
    this.rest = h("p", { class: "hint" });
    this.filters = KINDS.filter((kind) => report[kind] || kind === "created").map((kind) =>
      this.filter(kind),
    );
    this.node = h(
      "div",
      {},
      h("div", { class: "sums", role: "group", "aria-label": words.import.filter }, this.filters),
      this.decideAll(),
      (this.table = h(
        "table",
        { class: "rows" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            [words.import.row, words.import.store, words.name, words.address].map((text, at) =>
              h("th", { scope: "col", class: at ? undefined : "num" }, text),
            ),
          ),
        ),
        this.body,
      )),
      this.rest,
    );
    this.show(null);
  }

  /** Buttons that decide all rows in conflict in one way. */
  decideAll() {
    const problems = this.rows.filter(({ conflict }) => conflict);
    if (!problems.length) return null;
    const decide = (side) => () => {
      this.reading.decisions.decideAll(problems, side);
      this.show(this.kind);
      this.onDecided();
    };
    return h(
      "div",
      { class: "actions decide" },
      h("p", { class: "hint" }, words.decisions.lead(problems.length)),
      button(words.decisions.allTheirs, decide("present"), { class: "small" }),
      button(words.decisions.allMine, decide("row"), { class: "small" }),
    );
  }

  get summary() {
    return KINDS.filter((kind) => this.report[kind])
      .map((kind) => `${number(this.report[kind])} ${words.import.kinds[kind]}`)
      .join(", ");
  }

  filter(kind) {
    const isListed = kind in TAGS && this.report[kind] > 0;
    const content = [h("b", {}, number(this.report[kind])), " ", words.import.kinds[kind]];
    if (!isListed) return h("span", { class: `sum ${kind}` }, content);
    const toggle = () => this.show(this.kind === kind ? null : kind);
    return h(
      "button",
      {
        type: "button",
        class: `sum ${kind}`,
        "aria-pressed": "false",
        onclick: toggle,
        "data-kind": kind,
      },
      content,
    );
  }

  show(kind) {
    this.kind = kind;
    for (const one of this.filters) {
      if (one.dataset.kind) one.setAttribute("aria-pressed", String(one.dataset.kind === kind));
    }
    const rows = this.rows.filter((row) => !kind || row.kind === kind);
    const all = kind
      ? this.report[kind]
      : KINDS.slice(0, 4).reduce((sum, each) => sum + this.report[each], 0);
    this.body.replaceChildren(...rows.slice(0, LISTED).map((row) => this.row(row)));
    const more = all - Math.min(rows.length, LISTED);
    this.rest.textContent = more > 0 ? words.import.more(more) : "";
    this.table.hidden = !rows.length;
  }

  row(row) {
    const tag = h("span", { class: `tag ${TAGS[row.kind]}` }, words.import.tags[row.kind]);
    const id =
      row.id && row.kind !== "created"
        ? h("span", { class: "id" }, words.store.number(row.id))
        : null;
    const { decisions } = this.reading;
    const value = (field) => {
      if (row.conflict) return decisions.cell(row, field, this.onDecided);
      return row.message
        ? shown(short(this.reading.cell(row.row, field)), words.none[field])
        : change(row, field);
    };
    return h(
      "tr",
      { class: row.kind },
      h("td", { class: "num", "data-label": words.import.row }, number(row.line)),
      h("td", { class: "what" }, tag, " ", id),
      h(
        "td",
        { dir: "auto", "data-label": words.name },
        value("name"),
        row.message
          ? h(
              "p",
              { class: `hint ${TAGS[row.kind]}` },
              row.conflict ? author(row) : words.import.problem(row),
            )
          : null,
      ),
      h("td", { dir: "auto", "data-label": words.address }, value("address")),
    );
  }

  /**
   * How many rows are not imported, of those that the report has: each once, whatever is wrong with
   * it.
   */
  get rejected() {
    const byLine = new Map();
    for (const row of this.rows.filter(
      ({ line, message }) => message && !this.reading.decisions.has(line),
    )) {
      const known = byLine.get(row.line) ?? { row: row.row, reasons: [] };
      known.reasons.push(words.import.problem(row));
      byLine.set(row.line, known);
    }
    return [...byLine.values()];
  }

  /** Save the rows that are not imported, each with its reasons, to be corrected in a sheet. */
  saveRejected(name) {
    const rows = this.rejected;
    const columns = Object.keys(rows[0].row);
    const quoted = (text) => `"${String(text ?? "").replaceAll('"', '""')}"`;
    const lines = [
      [...columns, words.import.reasons],
      ...rows.map(({ row, reasons }) => [...columns.map((one) => row[one]), reasons.join("; ")]),
    ];
    const text = lines.map((cells) => cells.map(quoted).join(",")).join("\r\n");
    download(
      `${(name ?? "pasted").replace(/\.\w+$/, "")}-rejected.csv`,
      new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }),
    );
  }
}

const short = (text) => cut(text, MAX_SHOWN);

function change({ old, new: now }, field) {
  const [before, after] = [old?.[field] ?? null, now[field] ?? null];
  if (!old || before === after) return shown(after);
  return h("span", {}, h("del", {}, shown(before)), " ", h("ins", {}, shown(after)));
}
