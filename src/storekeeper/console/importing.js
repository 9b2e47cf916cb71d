// A sheet, pasted or dropped: which columns mean what, what would happen, and then the import. The service reads the
// file, so that what is shown here is what is written.

import { newKey, request } from "./api.js";
import { ask, button, h, icon, say } from "./dom.js";
import { canMatch, guess, query, several } from "./columns.js";
import { Preview } from "./preview.js";
import { unseen } from "./recent.js";
import { go } from "./route.js";
import { words } from "./words.js";

const XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const TIMEOUT = 130_000;
const ENCODINGS = { "": "UTF-8", cp1252: "Windows-1252", "mac-roman": "Mac Roman", "utf-16": "UTF-16", cp1250: "Windows-1250" };
const TOO_LONG = "x".repeat(31); // makes every row a bad one, whose cells the service then shows

export class Importing {
  constructor() {
    this.node = h("section", { class: "page import", "aria-labelledby": "import-title" });
    this.node.addEventListener("dragover", (event) => event.preventDefault());
    this.node.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files[0]) this.take(event.dataTransfer.files[0], event.dataTransfer.files[0].name);
    });
  }

  async show() {
    document.title = `${words.import.title} · ${words.title}`;
    if (!this.file) this.begin();
  }

  /** Ask for a sheet. */
  begin(problem = "") {
    this.file = null;
    const chosen = h("input", { type: "file", class: "sr", id: "file", accept: `.csv,.tsv,.txt,.xlsx,text/csv,${XLSX}` });
    chosen.addEventListener("change", () => chosen.files[0] && this.take(chosen.files[0], chosen.files[0].name));
    const pasted = h("textarea", { id: "pasted", rows: "4", spellcheck: "false", placeholder: words.import.example });
    pasted.addEventListener("paste", () => setTimeout(() => this.paste(pasted.value)));
    this.node.replaceChildren(
      h("h1", { id: "import-title", tabindex: "-1" }, words.import.title),
      h("p", { class: "lead" }, words.import.lead),
      h("p", { class: "note warn", role: "alert", hidden: !problem }, problem),
      h("div", { class: "drop" }, icon("sheet"), h("p", {}, words.import.drop),
        chosen, h("label", { for: "file", class: "button" }, words.import.choose)),
      h("div", { class: "field" }, h("label", { for: "pasted" }, words.import.paste), pasted),
      h("div", { class: "actions" }, button(words.import.look, () => this.paste(pasted.value), { class: "primary" }),
        h("a", { class: "button quiet", href: "./" }, words.cancel)),
    );
  }

  paste(text) {
    if (text.trim()) return this.take(new Blob([text]), null);
    this.node.querySelector("#pasted").focus();
  }

  /** Read a file's first rows, guess what its columns mean, and show what would happen. */
  async take(file, name) {
    [this.file, this.name, this.encoding] = [file, name, ""];
    const begin = new Uint8Array(await file.slice(0, 2).arrayBuffer());
    this.type = begin[0] === 0x50 && begin[1] === 0x4b ? XLSX : "text/csv";
    this.busy(words.import.reading);
    await this.look();
  }

  async look() {
    const first = { add: "true", header: "none", "skip-bad": "true", "dry-run": "true", map: [`name=${TOO_LONG}{1}`] };
    let response = await this.post(first);
    if (response.status === 400 && response.data.validation?.keys.includes("encoding") && !this.encoding) {
      this.encoding = "cp1252";
      response = await this.post(first);
    }
    if (response.status !== 200) return this.begin(words.import.unreadable(response.data.message));
    const rows = response.data.problems.map((problem) => Object.values(problem.row));
    if (!rows.length) return this.begin(words.import.nothing);
    const total = await request("stores?limit=1");
    this.sheet = guess(rows, Number(total.headers.get("total-count")) === 0);
    await this.preview();
  }

  busy(text) {
    this.node.replaceChildren(h("h1", { id: "import-title" }, words.import.of(this.name)), h("p", { class: "lead" }, text));
    say(text);
  }

  /** Send the file. */
  post(parameters, headers = {}) {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...parameters, encoding: this.encoding })) {
      for (const one of [value].flat()) if (one) search.append(name, one);
    }
    const sent = { method: "POST", body: this.file, headers: { "Content-Type": this.type, ...headers } };
    return request(`imports?${search}`, { ...sent, timeout: TIMEOUT });
  }

  /** Show what an import would do. */
  async preview(note = "") {
    this.node.setAttribute("aria-busy", "true");
    const response = await this.post({ ...query(this.sheet), "dry-run": "true", "skip-bad": "true", "on-conflict": "skip" });
    this.node.removeAttribute("aria-busy");
    const { status, data } = response;
    this.report = status === 200 ? data : null;
    const preview = this.report && new Preview(data, this.sheet);
    const cancel = button(words.cancel, () => this.begin(), { class: "quiet" });
    this.node.replaceChildren(
      h("div", { class: "heading" }, h("h1", { id: "import-title", tabindex: "-1" }, words.import.of(this.name)), cancel),
      h("p", { class: "lead" }, words.import.nothingYet),
      h("p", { class: "note warn", role: "alert", hidden: !note && status === 200 }, note || data.message),
      this.controls(),
      ...(preview ? [preview.node, this.footer(preview)] : []),
    );
    if (this.report) say(preview.summary);
  }

  controls() {
    const { sheet } = this;
    const choice = (id, label, options, chosen, onchange) =>
      h("div", { class: "field" }, h("label", { for: id }, label),
        h("select", { id, onchange: (event) => (onchange(event.target.value), this.preview()) },
          options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
    const columns = sheet.columns.map((name, at) => [name, sheet.header ? name : words.import.column(name, sheet.rows[0][at])]);
    const isSeveral = several(sheet.address);
    const template = h("input", { id: "template", value: sheet.address, spellcheck: "false", "aria-label": words.import.template });
    template.addEventListener("change", () => ((sheet.address = template.value), this.preview()));
    const header = h("input", { type: "checkbox", checked: sheet.header });
    header.addEventListener("change", () => ((this.sheet = guess(sheet.rows, sheet.isEmpty, header.checked)), this.preview()));
    return h("div", { class: "map" },
      choice("map-name", words.name, [["", words.import.kept], ...columns], sheet.name, (value) => (sheet.name = value)),
      h("div", {},
        choice("map-address", words.address, [["", words.import.kept], ...columns, ["{", words.import.several]],
          isSeveral ? "{" : sheet.address,
          (value) => (sheet.address = value === "{" ? `{${sheet.columns.slice(0, 2).join("}, {")}}` : value)),
        isSeveral ? template : null),
      choice("match", words.import.match,
        [...columns.filter(([name]) => canMatch(name)), ["", words.import.add]], sheet.match, (value) => (sheet.match = value)),
      h("div", { class: "options" },
        h("label", { class: "check" }, header, h("span", {}, words.import.header)),
        this.encoding ? choice("encoding", words.import.encoding, Object.entries(ENCODINGS), this.encoding,
          (value) => (this.encoding = value)) : null),
    );
  }

  footer(preview) {
    const { report } = this;
    const changes = report.created + report.replaced;
    const wrong = report.bad + report.conflicts;
    return h("div", { class: "sticky" },
      h("div", { class: "actions" },
        button(changes ? words.import.go(report, wrong) : words.import.same, () => this.confirm(), {
          class: "primary", disabled: !changes }),
        wrong ? button(words.import.save(wrong), () => preview.saveProblems(this.name)) : null),
      h("p", { class: "hint" }, report.created ? words.store.forever : ""),
    );
  }

  async confirm() {
    const { report } = this;
    if (report.created) {
      const answer = await ask({ title: words.import.confirm(report.created), lead: words.import.confirmWhy },
        h("div", { class: "actions" },
          h("button", { class: "primary", value: "yes" }, words.import.go(report, 0)),
          h("button", { class: "quiet", value: "no" }, words.import.back)));
      if (answer !== "yes") return;
    }
    await this.write();
  }

  async write() {
    const wrong = this.report.bad + this.report.conflicts;
    const partly = wrong ? { "skip-bad": "true", "on-conflict": "skip" } : {};
    this.busy(words.import.writing);
    const headers = { "Idempotency-Key": newKey(), "If-Match": `"${this.report.version}"` };
    const { status, data } = await this.post({ ...query(this.sheet), ...partly }, headers);
    if (status !== 200) return this.preview(status === 412 ? words.import.moved : data.message);
    this.file = null;
    unseen.imported(data.version, data.created + data.replaced);
    this.node.replaceChildren(
      h("div", { class: "empty" }, icon("check"), h("h2", { role: "status" }, words.import.done(data)),
        h("p", {}, words.import.doneWhy),
        h("div", { class: "actions" },
          h("a", { class: "button primary", href: "./" }, words.import.list),
          h("a", { class: "button", href: "?view=changes" }, words.recent.title),
          button(words.import.another, () => (go({ view: "import" }), this.begin())))),
    );
  }
}
