// Every word that the console says, in one place, so that it can be translated.

import { MAX_KEY, MAX_NAME } from "./limits.js"; // which the service makes

const numbers = new Intl.NumberFormat();

/** A number by the browser's locale. */
export const number = (value) => numbers.format(value);
const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;
const stores = (count) => plural(count, "store", "stores");

/** What is said about a row that is not imported, by the reason that its problem has. */
const problems = {
  ambiguous: ({ column, value }) => `Several stores have the ${column} ${value}`,
  conflict: () => "Another person changed this store meanwhile",
  cut: ({ message }) => message,
  has_nulls: ({ column }) => `The ${column} has a character that cannot be stored`,
  not_text: ({ column }) => `The ${column} is not a text`,
  not_version: ({ value }) => `${value} does not come from an export of this list`,
  repeated: ({ column, value }) => `The ${column} ${value} occurs more than once in the file`,
  required: ({ column }) => `The ${column} is missing`,
  too_large: () => "The row is too long to be stored",
  too_long: ({ column, value }) =>
    `${[...value].length} characters, at most ${column === "name" ? MAX_NAME : MAX_KEY}`,
  unknown_store: ({ column, value }) => `No store has the ${column} ${value}`,
  bad_cell: ({ message }) => message,
  unclosed_quote: () => "A quotation mark is not closed",
  header_again: () => "The row has the names of the columns again",
  taken: ({ message }) => message,
  other_key: ({ message }) => message,
  like_several: ({ message }) => message,
  rows_alike: ({ message }) => message,
  wrong_cells: () => "The row has another number of cells than the header",
};

const kinds = {
  csv: "text",
  json: "JSON",
  jsonl: "JSON",
  xlsx: "an Excel file",
  xls: "an old Excel file",
  xlsb: "an Excel file",
  ods: "a LibreOffice file",
};

const encodings = {
  cp1250: "Central Europe",
  cp1251: "Cyrillic",
  cp1252: "Western Europe",
  cp1253: "Greek",
  cp1254: "Turkish",
  cp1255: "Hebrew",
  cp1256: "Arabic",
  cp1257: "Baltic",
  cp1258: "Vietnamese",
  "koi8-r": "Cyrillic, Unix",
  "mac-roman": "old Mac",
  cp437: "DOS, USA",
  cp850: "DOS, Western Europe",
  cp852: "DOS, Central Europe",
  cp866: "DOS, Cyrillic",
  shift_jis: "Japanese",
  gb18030: "Chinese",
  big5: "Traditional Chinese",
  "euc-kr": "Korean",
  cp874: "Thai",
  cp932: "Japanese",
  cp949: "Korean",
  euc_jp: "Japanese, Unix",
  "iso8859-2": "Central Europe, Unix",
};

export const words = {
  title: "Stores",
  id: "id",
  name: "Name",
  address: "Address",
  none: { name: "no name", address: "no address" },
  someone: "Someone",
  withoutToken: "Someone without a key",
  userWith: (user, key) => `${user} (${key})`,
  close: "Close",
  cancel: "Cancel",
  loading: "Loading…",
  pages: "Pages",
  skip: "Skip to the content",

  live: { live: "Live", lost: "Reconnecting" },

  menu: {
    title: "Menu",
    reference: "For programmers: the API",
    document: "OpenAPI document",
    shortcut: "The key / goes to the search",
    help: "Help",
    me: ({ name, scope }) =>
      `${name ?? "Without a key"}, ${scope === "write" ? "may edit" : "may only read"}`,
  },

  list: {
    title: "List",
    search: "Search name or address",
    create: "New store",
    import: "Import",
    export: "Export",
    exporting: "The export is being made",
    formulas: (count) =>
      `${plural(count, "cell begins", "cells begin")} with =, +, - or @, ` +
      "which a spreadsheet takes for a formula. Export Excel instead.",
    tooMany: (count) =>
      `A file of a filtered list has at most ${stores(count)}. Add a search or a filter.`,
    more: "Show more",
    key: "Outside number",
    filters: "Sort and filter",
    sort: "Sort",
    sorts: {
      id: "By id",
      "-id": "By id, newest first",
      name: "By name",
      "-name": "By name, Z first",
      "-changed": "By latest change",
      changed: "By latest change, oldest first",
    },
    bare: "No address",
    twins: "Possible duplicates",
    since: "Changed since",
    nothingFits: "No store fits these filters",
    count: stores,
    found: (count, isMore) =>
      isMore ? `More than ${count} stores found` : `${stores(count)} found`,
    cell: (field, id) => `${field} of store ${id}`,
    searching: (q) => `Searching for “${q}”…`,
    nothing: (q) => `No store found for “${q}”`,
    nothingWhy: "Each word must occur in the name or the address. Try fewer letters.",
    clear: "Show all stores",
    empty: "No stores yet",
    emptyWhy: "Add the first one by hand, or bring the list that you have in a spreadsheet.",
    emptyDemo:
      "To try the page first, have the person who runs it start storekeeper serve --demo: " +
      "1,000 made-up stores.",
    first: "Add the first store",
    firstImport: "Import a spreadsheet",
    created: "new",
    changed: "changed",
  },

  store: {
    number: (id) => `id ${id}`,
    create: "New store",
    back: "Back to the list",
    unsaved: "unsaved",
    discard: "Discard",
    save: "Save",
    saveNext: "Save and next",
    createIt: "Create store",
    createNext: "Create and add another",
    counter: (count, most) => `${count} of ${most}`,
    forever: "A store cannot be deleted later, only changed.",
    draft: "This is your text, not saved yet",
    missing: (id) => `There is no store ${id}`,
    missingWhy: "Perhaps the address has a wrong number. Stores are never deleted.",
    saving: "Saving…",
    repeating: "Not confirmed yet. Trying again…",
    waiting: "No response yet. It is tried again until there is one; you may leave this page.",
    token: "Waiting for a key that may edit. Your text is kept.",
    stop: "Stop and keep editing",
    saved: "Saved",
    same: "Nothing to save",
    last: "This was the last store of the list.",
    created: (id) => `Store ${id} was created.`,
    refused: (message) => `Not saved: ${message}.`,
    changed: (who) =>
      `${who ?? "Someone"} changed this store while you were editing. ` +
      "Your text is untouched; Save shows both.",
    readonly: ({ name }) =>
      name ? "Your key may only read." : "To change stores, you need a key.",
    updated: (who) => `${who} changed this store`,
    restored: "This is the earlier version. Save to bring it back",
  },

  rules: {
    missing: "A store needs a name.",
    long: (count) => `${plural(count, "character", "characters")} too many.`,
    zero: "It has a null character, which cannot be stored.",
    large: "This address is too long to be stored.",
  },

  hints: {
    blank: "It has only blanks.",
    end: "There is a blank at the end.",
    start: "There is a blank at the beginning.",
    double: "There are two blanks in a row.",
    namesake: "Another store has this name: ",
  },

  history: {
    title: "History",
    more: "Show earlier changes",
    created: "Created",
    restore: "Restore this version",
    locked: "Save or discard your text first",
  },

  conflict: {
    title: (who, id) => `${who} changed store ${id} while you were editing`,
    choose: "Nothing is lost. Choose what the store should be.",
    when: "They saved it",
    before: "Before",
    theirs: "Theirs",
    mine: "Yours",
    other: "Something else",
    missing: "Choose one.",
    back: "Keep editing",
    sides: {
      same: "unchanged",
      theirs: "their change",
      mine: "your change",
      both: "both the same",
    },
  },

  doubt: {
    title: "Was this store created?",
    found: (who, when) =>
      `The response to your create was lost. ${who} created a store with this content: ${when}.`,
    nothing:
      "The response to your create was lost, and no store with this content was created since.",
    mine: (id) => `Yes, open store ${id}`,
    another: "No, create another",
    create: "Create it now",
    keepText: "Keep the text only",
  },

  token: {
    title: "Give a key",
    label: "Key",
    needed:
      "This list asks for a key, which begins with skt_. " +
      "The person who runs it can make one for you.",
    refused: "Your key no longer works. What you typed is kept.",
    readonly: "Your key may only read. To save, give one that may edit. What you typed is kept.",
    malformed: "This is not a complete key: one begins with skt_ and has 53 characters.",
    shared: "This is a shared computer: forget the key when this tab is closed",
    use: "Use this key",
    give: "Give a key",
    out: "Sign out",
    another: "Use the key of this link?",
    anotherWhy:
      "This browser has a key that works. Keep it unless you asked for another: " +
      "with another person's key, what you change is recorded under their name.",
    keepMine: "Keep my key",
    useOther: "Use the key of the link",
    notTaken: "The key of this link does not work, so it was not used.",
  },

  notices: {
    offline:
      "No connection to the list. What you type is kept, and everything continues by itself " +
      "once it is back.",
    away: (reason) =>
      `The list cannot respond now${reason && ` (${reason})`}. The page tries again by itself.`,
    token: "This list asks for a key.",
    refused: "Your key no longer works.",
    readonly: "Your key may only read.",
    failed: "That did not work. Try again.",
    unsaved: (target) =>
      target === "new" ? "The new store was not created." : `Store ${target} was not saved.`,
    open: "Show",
  },

  ticks: {
    tick: (id) => `Tick store ${id}`,
    count: (count) => `${number(count)} ticked:`,
    clear: "Clear",
    export: (format) => `${format} of the ticked stores`,
    all: "Tick all",
    most: (count) => `At most ${number(count)} stores can be ticked`,
  },

  decisions: {
    lead: (count) =>
      `${plural(count, "row differs", "rows differ")} from what others wrote meanwhile. ` +
      "Rows that you leave open are not imported.",
    theirs: "The list",
    mine: "Your sheet",
    other: "Something else",
    allTheirs: "The list's for all",
    allMine: "Your sheet's for all",
    group: (field, line) => `${field} of row ${line}`,
    author: (who, when) => `${who} changed it, ${when}`,
  },

  help: {
    title: "Help",
    pages: { list: "The list", store: "A store", changes: "Changes", import: "Import" },
    list: [
      "Type into the search: each word must occur in the name, the address or the id.",
      "The list continues as you scroll. Sort it by a title, and show only stores without an " +
        "address, possible duplicates, or what changed since a day.",
      "Arrow keys move through the list, Enter opens a store, / goes to the search.",
      "F2 edits the row itself: Tab moves to the next cell, Escape undoes.",
      "Export gives what the list shows, as a file that can be imported again; Space, or a click " +
        "on the box next to an id, ticks single stores for it.",
    ],
    store: [
      "Enter saves. Ctrl and Enter saves and opens the next store. Escape closes the store.",
      "What you type is kept until you save or discard it, also if the connection breaks or you " +
        "close the tab.",
      "If another person saves first, nothing is lost: you choose what the store should be.",
      "History shows what the store was, and brings an earlier version back.",
    ],
    changes: [
      "What you have not seen yet is above the line. Other people's changes appear by themselves.",
      "Undo takes a change back, unless the store was changed again since.",
      "Type a person, a name or an id to see only those changes.",
    ],
    import: [
      "Choose a file, or paste rows with their column names. Nothing is written before you say so.",
      "Check which columns are name and address, and how we recognise a store that is in the " +
        "list already.",
      "Rows that are not valid can be downloaded with their reasons; the others can be imported " +
        "without them.",
    ],
  },

  undo: {
    saved: (id) => `Store ${id} was saved.`,
    undo: "Undo",
    redo: "Redo",
    changedSince: (id) => `Store ${id} has been changed since, so there is nothing to undo.`,
    draft: (id) => `Store ${id} has text that is not saved yet. Save or discard it first.`,
  },

  proxy: {
    signIn: "The proxy asks you to sign in: reload the page. What you typed is kept.",
    reload: "Reload",
    away: (status) => `a proxy responds in its place, with status ${status}`,
    refused: (status) =>
      status === 413
        ? "A proxy on the way to the list lets nothing through that is this large"
        : `A proxy on the way to the list refuses this, with status ${status}`,
  },

  recent: {
    short: "Changes",
    title: "Recent changes",
    unseen: (count) => (count ? `${plural(count, "change", "changes")} since you last looked` : ""),
    fresh: (count) => `${plural(count, "change", "changes")} since you last looked.`,
    nothing: "Nothing has changed since you last looked.",
    seen: "You have seen what follows",
    changed: "changed",
    created: "created",
    counts: (created, changed) =>
      [created && `created ${stores(created)}`, changed && `changed ${stores(changed)}`]
        .filter(Boolean)
        .join(" and "),
    atOnce: (count) => `created or changed ${stores(count)} at once`,
    others: (count) => `and ${number(count)} more`,
    filter: "Show only changes of a person or a store",
    filterShort: "Person or store",
    filtered: (count, all) =>
      `${plural(count, "change", "changes")} of the ${number(all)} that were read`,
    more: "Show earlier changes",
  },

  import: {
    title: "Import a sheet",
    of: (name) => (name ? `Import “${name}”` : "Import pasted rows"),
    lead: "You see what would happen before anything is written.",
    drop: "Drop an Excel, CSV or LibreOffice file here",
    choose: "Choose a file",
    paste: "Or paste rows from a spreadsheet",
    example: "Name\tAddress",
    look: "Show what would happen",
    reading: "Reading the file…",
    writing: (count) => `Importing ${count} rows. They are written all at once, or not at all.`,
    unreadable: (message) => `This file cannot be read: ${message}.`,
    large: "This file has more than 64 MB. The person who runs the list can import it.",
    changed:
      "The file was changed after you chose it, so nothing was imported. " +
      "Choose it again to see what it would do now.",
    nothing: "There are no rows in it.",
    nothingYet: "Nothing is written yet. This is what the import would do.",
    kept: "not from this sheet",
    undecided: "Say how we recognise a store, to see what would happen.",
    read: ({ kind, sheet, headerRow }, rows) =>
      `Read as ${kinds[kind] ?? kind}${sheet ? `, sheet “${sheet}”` : ""}: ${rows} rows` +
      (headerRow ? `, below the names of the columns in row ${headerRow}` : ""),
    sheet: "Sheet",
    header: "Row with the names of the columns",
    noHeader: "There is none: the first row is a store",
    row_: (row, example) => (example ? `Row ${row}: ${example}` : `Row ${row}`),
    encoding: "How it should read",
    letters: (encoding, example) => `${example} (${encodings[encoding] ?? encoding})`,
    delimiter: "Between the columns there is",
    delimiters: { ",": "a comma", ";": "a semicolon", tab: "a tab", "|": "a bar |" },
    column: (name, example) => `Column ${name} (${example})`,
    addColumn: "Add a column…",
    part: (name, at, all) => `${name}, ${at} of ${all}`,
    without: (name) => `Without ${name}`,
    moveHelp: "Click to move it to the right; or drag it, or press an arrow key",
    between: "Comma or space",
    space: "space",
    comma: "A comma and a blank; change to a blank",
    blank: "A blank; change to a comma and a blank",
    match: "How we recognise a store",
    choose_: "Choose…",
    recognise: (match) => {
      if (match === "name") return "by its name";
      if (match === "id") return "by its id in this list";
      return `by your own “${match.replace(/^key:/, "")}”`;
    },
    add: "not at all: all rows are new stores",
    adopt: (count) =>
      "Give these numbers to the stores of the list that have the same name and address " +
      `(${plural(count, "row", "rows")}), instead of creating them again`,
    undoing: "Undoing the import…",
    undone: (count) => `${stores(count)} became what ${count === 1 ? "it was" : "they were"}`,
    stays: ({ kept, created }) =>
      `${plural(kept, "store stays", "stores stay")} as they are, at least in part: ` +
      (created ? `${stores(created)} that the import created, which cannot be deleted, and ` : "") +
      "what was changed since.",
    shorten: `Shorten names with more than ${MAX_NAME} characters`,
    unused: (names) => `Not used: ${names}`,
    dropped: (names) => `Not used, although it looks like a part of an address: ${names}`,
    filter: "Show only",
    kinds: {
      bad: "not valid",
      conflicts: "changed here and in your sheet",
      created: "new",
      replaced: "changed",
      unchanged: "unchanged",
      missing: "only in the list, left as they are",
    },
    tags: { bad: "not valid", conflicts: "changed since", created: "new", replaced: "changed" },
    row: "Row",
    store: "Store",
    reasons: "Reason",
    more: (count) => `and ${plural(count, "more row", "more rows")}`,
    problem: (problem) => {
      const said = problems[problem.reason];
      return said ? said(problem) : problem.message;
    },
    go: ({ created, replaced }, wrong, decided = 0) => {
      if (decided) return `Import ${plural(created + replaced + decided, "row", "rows")}`;
      if (wrong) return `Import the other ${number(created + replaced)}`;
      const parts = [
        created && `create ${number(created)}`,
        replaced && `change ${number(replaced)}`,
      ].filter(Boolean);
      const text = `${parts.join(" and ")} ${(replaced || created) === 1 ? "store" : "stores"}`;
      return text[0].toUpperCase() + text.slice(1);
    },
    same: "Nothing to import",
    save: (count, all) =>
      count < all
        ? `Download the first ${number(count)} of ${number(all)} rows with their reasons`
        : `Download the ${plural(count, "row with its reason", "rows with their reasons")}`,
    confirm: (count) => `Create ${stores(count)}?`,
    confirmWhy: "Stores cannot be deleted, neither here nor by anyone else.",
    back: "Back to the preview",
    moved: "The list has changed meanwhile. This is what the import would do now.",
    done: ({ created, replaced }) =>
      `${plural(created, "store", "stores")} created, ${number(replaced)} changed`,
    left: (count) => `${plural(count, "row was", "rows were")} not imported.`,
    doneWhy: "The history of each store has what it was before.",
    list: "Show the list",
    another: "Import another sheet",
  },
};
