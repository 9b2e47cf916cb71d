// Taking changes back: a save for ten seconds, and each change of the page Changes.

import { IMPORT_TIMEOUT, newKey, request } from "./api.js";
import { button, h } from "./dom.js";
import { recall } from "./keep.js";
import { hush, notify } from "./notice.js";
import { pending, write } from "./outbox.js";
import { FIELDS, payload } from "./rules.js";
import { words } from "./words.js";

const DURATION = 10_000;

const show = (id) => h("a", { class: "button small", href: `?store=${id}` }, words.notices.open);

/** Say that a store was saved, and offer to take that back. */
export function offerUndo({ store, before }) {
  const undo = () => {
    hush();
    undoChange({ store, previous: before });
  };
  notify(words.undo.saved(store.id), button(words.undo.undo, undo, { class: "small" }), DURATION);
}

/** Say that a store was created. */
export function sayCreated({ id }) {
  notify(words.store.created(id), show(id), DURATION);
}

/** Take back what a change did, as far as it has not been changed since. */
export async function undoChange({ store, previous }) {
  const { status, data, tag } = await request(`stores/${store.id}`);
  if (status !== 200) return notify(words.notices.failed);
  const still = FIELDS.filter(
    (field) => previous[field] !== store[field] && data[field] === store[field],
  );
  if (!still.length) return notify(words.undo.changedSince(store.id), show(store.id));
  const before = { ...data, ...Object.fromEntries(still.map((field) => [field, previous[field]])) };
  takeBack(store, before, data, tag);
}

/** Undo an import by the cursors of its first and its last change; return the response. */
export const undoImport = (from, to) =>
  request(`imports/undo?${new URLSearchParams({ from, to })}`, {
    method: "POST",
    headers: { "Idempotency-Key": newKey() },
    timeout: IMPORT_TIMEOUT,
  });

/** Undo an import of the page Changes. */
export async function undoGroup(from, to) {
  const { status, data } = await undoImport(from, to);
  if (status !== 200) return notify(data.message);
  const stays = data.kept ? ` ${words.import.stays(data)}` : "";
  notify(`${words.import.undone(data.undone)}.${stays}`);
}

/** Write what a store was before; what is typed and not saved yet is never touched. */
function takeBack({ id }, before, now, tag) {
  const target = String(id);
  if (recall(`draft:${target}`) || pending(target)) return notify(words.undo.draft(id), show(id));
  write(target, payload(before), tag, now);
}
