// A sheet, pasted or dropped: what it is, what its columns mean, what would happen, and then the
// import. The service reads the file, so that what is shown here is what is written.

import { IMPORT_TIMEOUT, latest, newKey, request } from "./api.js";
import { ask, button, h, icon, say } from "./dom.js";
import { Preview } from "./preview.js";
import { fileControls, meaningControls, Reading } from "./reading.js";
import { unseen } from "./recent.js";
import { undoImport } from "./undo.js";
import { number, words } from "./words.js";

const MAX_SIZE = 64 * 2 ** 20;
const SHOWN_PROGRESS = 2 ** 20; // bytes of a file whose upload takes long enough to be watched
const DRY_RUN = { "dry-run": "true", "skip-bad": "true", "on-conflict": "skip" };
const ACCEPTED = ".csv,.tsv,.txt,.xlsx,.xls,.ods,.json,.jsonl,.ndjson";

export class Importing {
  constructor() {
    this.begun = latest();
    this.node = h("section", { class: "page import", "aria-labelledby": "import-title" });
    this.node.addEventListener("dragover", (event) => event.preventDefault());
    this.node.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files[0]) {
        this.take(event.dataTransfer.files[0], event.dataTransfer.files[0].name);
      }
    });
  }

  async show() {
    document.title = `${words.import.title} · ${words.title}`;
    if (!this.file) this.begin();
  }

  /** Ask for a sheet. */
  begin(problem = "") {
    this.begun();
    this.file = this.reading = null;
    const chosen = h("input", { type: "file", class: "sr", id: "file", accept: ACCEPTED });
    chosen.addEventListener(
      "change",
      () => chosen.files[0] && this.take(chosen.files[0], chosen.files[0].name),
    );
    const pasted = h("textarea", {
      id: "pasted",
      rows: "4",
      spellcheck: "false",
      placeholder: words.import.example,
    });
    pasted.addEventListener("paste", () => setTimeout(() => this.paste(pasted.value)));
    this.node.replaceChildren(
      h("h1", { id: "import-title", tabindex: "-1" }, words.import.title),
      h("p", { class: "lead" }, words.import.lead),
      h("p", { class: "note warn", role: "alert", hidden: !problem }, problem),
      h(
        "div",
        { class: "drop" },
        icon("sheet"),
        h("p", {}, words.import.drop),
        chosen,
        h("label", { for: "file", class: "button" }, words.import.choose),
      ),
      h("div", { class: "field" }, h("label", { for: "pasted" }, words.import.paste), pasted),
      h(
        "div",
        { class: "actions" },
        button(words.import.look, () => this.paste(pasted.value), { class: "primary" }),
        h("a", { class: "button quiet", href: "./" }, words.cancel),
      ),
    );
  }

  paste(text) {
    if (text.trim()) return this.take(new Blob([text]), null);
    this.node.querySelector("#pasted").focus();
  }

  /** Take a file as it is at this moment, and show what it is and what would happen. */
  async take(file, name) {
    if (file.size > MAX_SIZE) return this.begin(words.import.large);
    const isLatest = this.begun();
    const bytes = await file.arrayBuffer().catch(() => null);
    if (!isLatest()) return;
    if (!bytes) return this.begin(words.import.changed);
    Object.assign(this, { file, bytes, name, reading: null, isReadOpen: false });
    this.busy(words.import.reading);
    await this.look({});
  }

  /** Whether the file is still what it was when it was chosen. */
  async isUnchanged() {
    const now = await this.file.arrayBuffer().catch(() => null);
    if (now?.byteLength !== this.bytes.byteLength) return false;
    const [before, after] = [new Uint8Array(this.bytes), new Uint8Array(now)];
    return before.every((byte, at) => byte === after[at]);
  }

  /** Ask what the file is, if it is read as these parameters say. */
  async look(parameters) {
    const isLatest = this.begun();
    this.mark(true);
    const { status, data } = await this.question({ ...parameters, look: "true" });
    if (!isLatest()) return;
    this.mark(false);
    if (status !== 200 && this.reading) {
      return this.draw(null, words.import.unreadable(data.message));
    }
    if (status !== 200) return this.begin(words.import.unreadable(data.message));
    if (!data.rows) return this.begin(words.import.nothing);
    if (data.unsaid.some((one) => ["encoding", "delimiter", "sheet"].includes(one))) {
      this.isReadOpen = true;
    }
    this.reading = new Reading(data);
    await this.preview();
  }

  /** While something newer is on its way, what is shown must not be imported. */
  mark(isBusy) {
    this.node.setAttribute("aria-busy", String(isBusy));
    for (const one of this.node.querySelectorAll(".sticky button")) one.disabled ||= isBusy;
  }

  busy(text) {
    this.progress = h("progress", { hidden: true, "aria-label": text });
    this.node.replaceChildren(
      h("h1", { id: "import-title" }, words.import.of(this.name)),
      h("p", { class: "lead" }, text),
      this.progress,
    );
    say(text);
  }

  /**
   * Ask what an import would do; an earlier question, which is still on its way, ends. Nothing is
   * written.
   */
  async question(parameters) {
    this.asked?.abort();
    this.asked = new AbortController();
    return this.post(parameters, {}, this.asked.signal).catch((error) => {
      if (error.name !== "AbortError") throw error;
      return {};
    });
  }

  /** Send the file, with the decisions on conflicts if there are any. */
  post(parameters, headers = {}, signal = undefined, decisions = []) {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) {
      for (const one of [value].flat()) search.append(name, one);
    }
    const onProgress =
      this.bytes.byteLength > SHOWN_PROGRESS ? (sent, all) => this.follow(sent, all) : null;
    const { type, body } = decisions.length
      ? withDecisions(decisions, this.bytes)
      : { type: "text/csv", body: new Blob([this.bytes]) };
    const sent = {
      method: "POST",
      body,
      headers: { "Content-Type": type, ...headers },
      onProgress,
      signal,
    };
    return request(`imports?${search}`, { ...sent, timeout: IMPORT_TIMEOUT });
  }

  /** Show how much of the file has arrived; then only that it is worked on. */
  follow(sent, all) {
    const bar = this.progress;
    if (!bar?.isConnected) return;
    bar.hidden = false;
    bar.max = all;
    if (sent < all) bar.value = sent;
    else bar.removeAttribute("value");
  }

  /** Show what an import would do. */
  async preview(note = "") {
    const { reading } = this;
    const isLatest = this.begun();
    if (!reading.isDecided) return this.draw(null, note || words.import.undecided);
    this.mark(true);
    const parameters = reading.parameters;
    const { status, data } = await this.question({ ...parameters, ...DRY_RUN });
    if (!isLatest()) return;
    const known = status === 200 ? await this.known(data, parameters) : 0;
    if (!isLatest()) return;
    this.mark(false);
    if (status !== 200) return this.draw(null, data.message);
    this.shown = { report: data, parameters, known };
    const preview = new Preview(data, reading, () =>
      this.node.querySelector(".sticky").replaceWith(this.footer(preview)),
    );
    this.draw(preview, note);
  }

  /** How many of the rows of new stores are stores that the list has, without their number. */
  async known(report, parameters) {
    const { reading } = this;
    if (!reading.isByKey) return 0;
    if (reading.adopt) return report.adopted;
    if (!report.created || !(report.missing + report.replaced + report.unchanged)) return 0;
    const { status, data } = await this.question({ ...parameters, adopt: "true", ...DRY_RUN });
    return status === 200 ? report.created - data.created : 0;
  }

  draw(preview, note) {
    const { reading } = this;
    const { look } = reading;
    const focused = document.activeElement?.id;
    const again = () => this.preview();
    const cancel = button(words.cancel, () => this.begin(), { class: "quiet" });
    const { unused } = reading;
    const dropped = (preview?.report.dropped ?? []).filter((name) => !look.dropped.includes(name));
    this.progress = h("progress", { hidden: true, "aria-label": words.import.reading });
    this.node.replaceChildren(
      h(
        "div",
        { class: "heading" },
        h("h1", { id: "import-title", tabindex: "-1" }, words.import.of(this.name)),
        cancel,
      ),
      h("p", { class: "lead" }, words.import.nothingYet),
      h("p", { class: "note warn", role: "alert", hidden: !note }, note),
      h("div", { class: "map" }, meaningControls(reading, again)),
      h(
        "details",
        {
          class: "read",
          open: this.isReadOpen,
          ontoggle: (event) => (this.isReadOpen = event.target.open),
        },
        h("summary", {}, words.import.read(look, number(look.rows))),
        h(
          "div",
          { class: "map" },
          fileControls(reading, (parameters) => this.look(parameters)),
        ),
      ),
      h(
        "ul",
        { class: "hints" },
        look.notes.map((text) => h("li", { class: "warn" }, text)),
        unused.length ? h("li", {}, words.import.unused(unused.join(", "))) : null,
        dropped.length
          ? h("li", { class: "warn" }, words.import.dropped(dropped.join(", ")))
          : null,
      ),
      this.progress,
      ...(preview ? [...this.options(preview), preview.node, this.footer(preview)] : []),
    );
    if (focused) document.getElementById(focused)?.focus();
    if (preview) say(preview.summary);
  }

  /**
   * What may be done about rows: shorten names that are too long, give stores that are there their
   * keys.
   */
  options(preview) {
    const { reading } = this;
    const long = preview.report.problems.filter(
      ({ column, reason }) => column === "name" && ["too_long", "cut"].includes(reason),
    );
    const { known } = this.shown;
    const canAdopt = reading.isByKey && (known || reading.adopt);
    return [
      long.length || reading.cutNames ? this.option("cutNames", words.import.shorten) : null,
      canAdopt ? this.option("adopt", words.import.adopt(known)) : null,
    ].filter(Boolean);
  }

  option(property, text) {
    const { reading } = this;
    const box = h("input", { type: "checkbox", id: property, checked: reading[property] });
    box.addEventListener("change", () => {
      reading[property] = box.checked;
      this.preview();
    });
    return h("label", { class: "check" }, box, h("span", {}, text));
  }

  footer(preview) {
    const { report } = preview;
    const changes = report.created + report.replaced;
    const decided = this.reading.decisions.sent.length;
    const wrong = report.bad + report.conflicts - decided;
    const rejected = preview.rejected.length;
    return h(
      "div",
      { class: "sticky" },
      h(
        "div",
        { class: "actions" },
        button(
          changes || decided ? words.import.go(report, wrong, decided) : words.import.same,
          () => this.confirm(),
          {
            class: "primary",
            disabled: !changes && !decided,
          },
        ),
        rejected
          ? button(words.import.save(rejected, wrong), () => preview.saveRejected(this.name))
          : null,
      ),
      h("p", { class: "hint" }, report.created ? words.store.forever : ""),
    );
  }

  async confirm() {
    const { report, parameters } = this.shown;
    if (report.created) {
      const answer = await ask(
        { title: words.import.confirm(report.created), lead: words.import.confirmWhy },
        h(
          "div",
          { class: "actions" },
          h("button", { class: "primary", value: "yes" }, words.import.go(report, 0)),
          h("button", { class: "quiet", value: "no" }, words.import.back),
        ),
      );
      if (answer !== "yes") return;
    }
    if (!(await this.isUnchanged())) return this.begin(words.import.changed);
    await this.write(report, parameters);
  }

  async write(report, parameters) {
    const isLatest = this.begun();
    const partly =
      report.bad + report.conflicts ? { "skip-bad": "true", "on-conflict": "skip" } : {};
    this.busy(words.import.writing(number(report.created + report.replaced)));
    const headers = { "Idempotency-Key": newKey(), "If-Match": `"${report.version}"` };
    const { status, data } = await this.post(
      { ...parameters, ...partly },
      headers,
      undefined,
      this.reading.decisions.sent,
    );
    if (!isLatest()) return;
    if (status !== 200) return this.preview(status === 412 ? words.import.moved : data.message);
    this.file = null;
    unseen.imported(data.version, data.created + data.replaced);
    const left = data.bad + data.conflicts;
    this.done(words.import.done(data), left ? words.import.left(left) : words.import.doneWhy, data);
  }

  /** Undo an import, or an undo; what others have changed since stays. */
  async undo({ from, to }) {
    const isLatest = this.begun();
    this.busy(words.import.undoing);
    const { status, data } = await undoImport(from, to);
    if (!isLatest()) return;
    if (status !== 200) return this.done(words.notices.failed, data.message, { from, to });
    unseen.imported(data.version, data.undone);
    const stays = data.kept ? words.import.stays(data) : "";
    this.done(words.import.undone(data.undone), stays, data, words.undo.redo);
  }

  done(title, text, range, undo = words.undo.undo) {
    this.node.replaceChildren(
      h(
        "div",
        { class: "empty" },
        icon("check"),
        h("h2", { role: "status" }, title),
        h("p", {}, text),
        h(
          "div",
          { class: "actions" },
          range.from ? button(undo, () => this.undo(range)) : null,
          h("a", { class: "button primary", href: "./" }, words.import.list),
          h("a", { class: "button", href: "?view=changes" }, words.recent.title),
          button(words.import.another, () => this.begin()),
        ),
      ),
    );
  }
}

/** The body of an import with decisions: first these as JSON, then the file. */
function withDecisions(decisions, bytes) {
  const boundary = newKey();
  const begin =
    `--${boundary}\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(decisions)}\r\n` +
    `--${boundary}\r\nContent-Type: text/csv\r\n\r\n`;
  return {
    type: `multipart/mixed; boundary=${boundary}`,
    body: new Blob([begin, bytes, `\r\n--${boundary}--\r\n`]),
  };
}
