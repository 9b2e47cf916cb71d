// What a file is and what its columns mean, as the service proposes it and a person corrects it.
// The whole of it goes back with an import, so that what is written is what was seen.

import { Decisions } from "./decisions.js";
import { button, h } from "./dom.js";
import { FIELDS } from "./rules.js";
import { words } from "./words.js";

const DELIMITERS = [",", ";", "tab", "|"];
const ROWS = 12; // among which a header is looked for by hand
const MAX_EXAMPLE = 60;
const UNDECIDED = "?";
const NEW = "";

const isPart = (text) => /\{[^{}]*\}/.test(text);

/**
 * The columns of a template, each with what stands before it; one column is a template of itself.
 */
function partsOf(template) {
  if (!template) return [];
  if (!isPart(template)) return [{ column: template, before: "" }];
  return [...template.matchAll(/([^{}]*)\{([^{}]*)\}/g)].map(([, before, column]) => ({
    column,
    before,
  }));
}

const templateOf = (parts) =>
  parts.length < 2
    ? (parts[0]?.column ?? "")
    : parts.map(({ column, before }, at) => `${at ? before : ""}{${column}}`).join("");

export class Reading {
  constructor(look) {
    this.look = look;
    const mapped = new Map(
      (look.parameters.map ?? []).map((one) => [
        one.slice(0, one.indexOf("=")),
        one.slice(one.indexOf("=") + 1),
      ]),
    );
    this.name = mapped.get("name") ?? "";
    this.parts = partsOf(mapped.get("address"));
    this.others = [...mapped]
      .filter(([field]) => !FIELDS.includes(field))
      .map((pair) => pair.join("="));
    this.match = look.parameters.match ?? (look.unsaid.includes("match") ? UNDECIDED : NEW);
    this.cutNames = this.adopt = false;
    this.decisions = new Decisions();
  }

  get columns() {
    return this.look.columns.map(({ name }) => name).filter(Boolean);
  }

  /** Whether stores are recognised by a key of another system. */
  get isByKey() {
    return ![NEW, UNDECIDED, "id", "name"].includes(this.match);
  }

  get isDecided() {
    return this.match !== UNDECIDED;
  }

  /** The parameters that say how the file is read, and nothing of what its columns mean. */
  get file() {
    const { map, match, ...file } = this.look.parameters;
    return file;
  }

  /** The parameters of an import. */
  get parameters() {
    const map = [
      ...this.others,
      ...(this.name ? [`name=${this.name}`] : []),
      `address=${templateOf(this.parts)}`,
    ];
    const match = this.match === NEW ? { add: "true" } : { match: this.match };
    return {
      ...this.file,
      map,
      ...match,
      ...(this.cutNames && { "cut-names": "true" }),
      ...(this.adopt && this.isByKey && { adopt: "true" }),
    };
  }

  /** What the file has for a field in a row that is not imported. */
  cell(row, field) {
    const known = new Map(Object.entries(row).map(([name, value]) => [name.toLowerCase(), value]));
    const text = (column) => known.get(column.toLowerCase()) ?? "";
    if (field === "name") return text(this.name);
    return this.parts.map(({ column, before }, at) => (at ? before : "") + text(column)).join("");
  }

  /** Columns that mean nothing. */
  get unused() {
    const used = [
      this.name,
      this.match.replace(/^key:/, ""),
      "id",
      "version",
      ...this.parts.map(({ column }) => column),
    ];
    return this.columns.filter(
      (one) => !used.some((other) => other.toLowerCase() === one.toLowerCase()),
    );
  }
}

const field = (id, label, ...content) =>
  h("div", { class: "field" }, h("label", { for: id }, label), ...content);

function choice(id, label, options, chosen, onchange) {
  return field(
    id,
    label,
    h(
      "select",
      { id, onchange: (event) => onchange(event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
    ),
  );
}

const example = (text) => (text.length > MAX_EXAMPLE ? `${text.slice(0, MAX_EXAMPLE)}…` : text);

/** The controls of how the file is read: `onFile(parameters)` reads it again. */
export function fileControls({ look, file }, onFile) {
  const set = (name) => (value) => onFile({ ...file, [name]: value });
  const controls = [];
  if (look.sheets.length > 1) {
    controls.push(
      choice(
        "sheet",
        words.import.sheet,
        look.sheets.map(({ name }) => [name, name]),
        look.sheet,
        set("sheet"),
      ),
    );
  }
  if (look.encodings.length > 1) {
    const options = look.encodings.map((one) => [
      one.encoding,
      words.import.letters(one.encoding, example(one.example)),
    ]);
    controls.push(
      choice("encoding", words.import.encoding, options, look.encoding, set("encoding")),
    );
  }
  if (look.delimiter) {
    const options = DELIMITERS.map((one) => [one, words.import.delimiters[one]]);
    controls.push(
      choice(
        "delimiter",
        words.import.delimiter,
        options,
        look.delimiter === "\t" ? "tab" : look.delimiter,
        set("delimiter"),
      ),
    );
  }
  if (!look.kind.startsWith("json")) {
    const first = new Map(look.sample.map(({ line, cells }) => [line, cells]));
    if (look.headerRow) {
      first.set(
        look.headerRow,
        look.columns.map(({ name }) => name),
      );
    }
    const rows = Array.from({ length: Math.max(ROWS, look.headerRow ?? 0) }, (_, at) => at + 1);
    const options = rows.map((row) => [
      String(row),
      words.import.row_(row, example((first.get(row) ?? []).filter(Boolean).join(" · "))),
    ]);
    controls.push(
      choice(
        "header-row",
        words.import.header,
        [...options, ["none", words.import.noHeader]],
        String(look.headerRow ?? "none"),
        set("header-row"),
      ),
    );
  }
  return controls;
}

/** The controls of what the columns mean: `onMeaning()` shows what would happen then. */
export function meaningControls(reading, onMeaning) {
  const { look } = reading;
  const set = (property) => (value) => {
    reading[property] = value;
    onMeaning();
  };
  const examples = new Map(look.columns.map((one) => [one.name, one.examples[0] ?? ""]));
  const columns = reading.columns.map((name) => [
    name,
    look.headerRow ? name : words.import.column(name, example(examples.get(name))),
  ]);
  const matches = look.matchChoices.map((one) => [one, words.import.recognise(one)]);
  if (
    reading.match !== NEW &&
    reading.match !== UNDECIDED &&
    !look.matchChoices.includes(reading.match)
  ) {
    matches.unshift([reading.match, words.import.recognise(reading.match)]);
  }
  if (!reading.isDecided) matches.unshift([UNDECIDED, words.import.choose_]);
  return [
    choice(
      "map-name",
      words.name,
      [["", words.import.kept], ...columns],
      reading.name,
      set("name"),
    ),
    chips(reading, columns, onMeaning),
    choice(
      "match",
      words.import.match,
      [...matches, [NEW, words.import.add]],
      reading.match,
      set("match"),
    ),
  ];
}

/**
 * The columns of the address, one after another: chosen from a list, moved by their buttons or
 * dragged.
 */
function chips(reading, columns, onMeaning) {
  const { parts } = reading;
  const titles = new Map(columns);
  const change = (focus) => {
    onMeaning();
    document.getElementById(focus)?.focus();
  };
  const move = (from, to) => {
    if (to < 0 || to >= parts.length) return;
    parts.splice(to, 0, ...parts.splice(from, 1));
    change(`part-${to}`);
  };
  const remove = (at) => {
    parts.splice(at, 1);
    change("add-column");
  };
  const key = (at) => (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) move(at, at + step);
    else if (event.key === "Delete" || event.key === "Backspace") remove(at);
    else return;
    event.preventDefault();
  };
  const chip = ({ column }, at) =>
    h(
      "li",
      {
        class: "chip",
        draggable: "true",
        ondragstart: (event) => event.dataTransfer.setData("text/x-part", String(at)),
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => {
          event.preventDefault();
          event.stopPropagation();
          const from = event.dataTransfer.getData("text/x-part");
          if (from !== "") move(Number(from), at);
        },
      },
      h(
        "button",
        {
          type: "button",
          id: `part-${at}`,
          onkeydown: key(at),
          onclick: () => move(at, at + 1),
          translate: "no",
          title: words.import.moveHelp,
          "aria-label": words.import.part(titles.get(column) ?? column, at + 1, parts.length),
        },
        titles.get(column) ?? column,
      ),
      h(
        "button",
        {
          type: "button",
          onclick: () => remove(at),
          "aria-label": words.import.without(titles.get(column) ?? column),
        },
        "×",
      ),
    );
  const separator = (part, at) =>
    h(
      "li",
      {},
      button(
        part.before.includes(",") ? "," : words.import.space,
        () => {
          part.before = part.before.includes(",") ? " " : ", ";
          change(`before-${at}`);
        },
        {
          id: `before-${at}`,
          class: "separator",
          title: words.import.between,
          "aria-label": part.before.includes(",") ? words.import.comma : words.import.blank,
        },
      ),
    );
  const rest = columns.filter(([name]) => !parts.some(({ column }) => column === name));
  const add = h(
    "select",
    {
      id: "add-column",
      onchange: (event) => {
        parts.push({ column: event.target.value, before: ", " });
        change("add-column");
      },
    },
    h("option", { value: "" }, parts.length ? words.import.addColumn : words.import.kept),
    rest.map(([name, title]) => h("option", { value: name }, title)),
  );
  return field(
    "add-column",
    words.address,
    parts.length
      ? h(
          "ol",
          { class: "chips" },
          parts.flatMap((part, at) => [at ? separator(part, at) : null, chip(part, at)]),
        )
      : null,
    add,
  );
}
