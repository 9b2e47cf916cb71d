// Writes that are under way. Each is kept before it is sent, with a key, and repeated with that key
// until a response says what became of it: after a lost response, a reload or a restart of the
// service there is never a second store.

import {
  cursorOf,
  feed,
  isAway,
  lack,
  Lost,
  needToken,
  newKey,
  part,
  pause,
  request,
  send,
  tokenMark,
} from "./api.js";
import { forget, keep, kept, recall } from "./keep.js";
import { equal, FIELDS, payload as asPayload } from "./rules.js";

const MAX_AGE = 23 * 3600 * 1000; // the service keeps keys for a day

const running = new Set();
const watchers = new Map();

/** Versions that this page wrote, so that the feed has nothing new to say about them. */
export const own = new Set();

export const pending = (target) => recall(`pending:${target}`);

/**
 * Have `watcher(state, details)` called with the progress of a target's write; return how to stop
 * that.
 */
export function watch(target, watcher) {
  const all = watchers.get(target) ?? new Set();
  watchers.set(target, all.add(watcher));
  return () => all.delete(watcher);
}

function tell(target, state, details = {}) {
  for (const watcher of watchers.get(target) ?? []) watcher(state, details);
}

/**
 * Write a store: `target` is its id, or "new"; `base` is the version that it is based on, with its
 * `tag`.
 */
export function write(target, payload, tag, base) {
  const began = {
    payload,
    tag,
    base,
    key: newKey(),
    mark: tokenMark(),
    cursor: feed.cursor,
    at: Date.now(),
    unknown: false,
  };
  keep(`pending:${target}`, began);
  return run(target);
}

/** Continue what was under way when the page was left. */
export function resume() {
  for (const name of kept("pending:")) {
    const target = name.slice("pending:".length);
    if (/^(new|\d+)$/.test(target)) run(target);
  }
}

/** Give up a write that has certainly not been done, or one that may be done as well. */
export function drop(target) {
  forget(`pending:${target}`);
  tell(target, "dropped");
}

async function run(target) {
  if (running.has(target)) return;
  running.add(target);
  try {
    for (let tries = 0; pending(target); tries++) {
      if (await isSettled(target, tries)) return;
    }
  } finally {
    running.delete(target);
  }
}

/** Send a pending write once; return whether that settled it. */
async function isSettled(target, tries) {
  const valid = await withValidKey(target, pending(target));
  if (!valid) return true;
  const write = { ...valid, unknown: valid.unknown || Boolean(valid.sending), sending: true };
  keep(`pending:${target}`, write);
  tell(target, tries || write.unknown ? "repeating" : "saving", write);
  const response = await attempt(target, write);
  const state = pending(target);
  if (!state || state.key !== write.key) return !state; // dropped meanwhile
  const lost = !response || (isAway(response.status) && response.data.outcome !== "none");
  keep(`pending:${target}`, { ...write, unknown: write.unknown || lost, sending: false });
  if (lost || response.status === 503) {
    tell(target, "waiting", pending(target));
    await pause(tries);
    return false;
  }
  return isOver(target, write, response);
}

/**
 * Return a write with a key that counts: another one if its own belongs to another token, or is
 * forgotten. Only what was certainly not done is sent again unasked; null if it is not.
 */
async function withValidKey(target, write) {
  const isValid = write.mark === tokenMark() && Date.now() - write.at <= MAX_AGE;
  if (isValid) return write;
  const isInDoubt = target === "new" && (write.unknown || write.sending);
  if (isInDoubt && !(await decided(target, write))) return null;
  return { ...write, key: newKey(), mark: tokenMark(), at: Date.now(), unknown: false };
}

/** Do what the service's response to a write asks for; return whether the write is over. */
async function isOver(target, write, response) {
  const lacks = lack(response.status, "PATCH");
  if (lacks && write.mark !== tokenMark()) return false; // another token came meanwhile
  if (lacks) {
    tell(target, "token", pending(target));
    await needToken(lacks);
    return false;
  }
  const now = response.status === 412 ? await request(`stores/${target}`) : null;
  if (pending(target)?.key !== write.key) return !pending(target); // dropped meanwhile
  // The store is what was sent: the write was done, under a key that counts no longer.
  const isDone = now?.status === 200 && equal(now.data, write.payload);
  const merged = now?.status === 200 && !isDone && merge(write, now.data);
  if (merged) {
    keep(`pending:${target}`, {
      ...write,
      payload: merged,
      base: now.data,
      tag: now.tag,
      key: newKey(),
      at: Date.now(),
    });
    return false;
  }
  forget(`pending:${target}`);
  settle(target, write, isDone ? now : response);
  return true;
}

async function attempt(target, { payload, base, tag, key }) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  if (tag) headers["If-Match"] = tag;
  const [method, path] = target === "new" ? ["POST", "stores"] : ["PATCH", `stores/${target}`];
  const body = target === "new" ? payload : changes(payload, base);
  try {
    return await send(path, { method, headers, body: JSON.stringify(body) });
  } catch (error) {
    if (error instanceof Lost) return null;
    throw error;
  }
}

const valueOf = (content, field) => content?.[field] ?? null;

/** The fields that differ from the base, as a merge patch. */
function changes(content, base) {
  const changed = FIELDS.filter(
    (field) => !base || valueOf(content, field) !== valueOf(base, field),
  );
  return Object.fromEntries(changed.map((field) => [field, valueOf(content, field)]));
}

/**
 * What the store is to be if another client changed other fields than this write; null if both
 * changed one.
 */
function merge({ payload, base }, theirs) {
  const [ours, others] = [changes(payload, base), changes(theirs, base)];
  const clashes = FIELDS.some(
    (field) => field in ours && field in others && ours[field] !== others[field],
  );
  return clashes || !base
    ? null
    : asPayload({ name: theirs.name, address: theirs.address, ...ours });
}

function settle(target, { payload, base }, { status, data, tag: now }) {
  if (status === 200) {
    const seq = Number.parseInt(cursorOf(now), 10);
    own.add(seq);
    forget(`draft:${target}`);
    tell(target, "saved", { store: data, tag: now });
    window.dispatchEvent(
      new CustomEvent("saved", {
        detail: { store: data, tag: now, before: base, seq, created: target === "new" },
      }),
    );
    return;
  }
  const refusal = { status, message: data.message, keys: data.validation?.keys ?? [] };
  tell(
    target,
    status === 412 ? "conflict" : "refused",
    status === 412 ? { payload, base } : refusal,
  );
  if (!watchers.get(target)?.size) {
    window.dispatchEvent(new CustomEvent("unsaved", { detail: target }));
  }
}

async function decided(target, write) {
  tell(target, "token", write);
  const { action, store, tag } = await (await part("./doubt.js")).resolveDoubt(write);
  if (action === "again") return true;
  forget(`pending:${target}`);
  if (action === "found") {
    forget(`draft:${target}`);
    tell(target, "saved", { store, tag });
  } else tell(target, "dropped");
  return false;
}
