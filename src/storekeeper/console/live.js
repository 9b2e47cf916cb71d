// Changes of others as they happen. All tabs of a browser share one stream, since it has six
// connections to a host: one visible tab leads, and tells the others. Where tabs cannot share, or
// no events get through, pages of changes are asked for, a few times a minute. A hidden tab asks
// nothing.

import {
  authorization,
  BASE,
  cursorOf,
  epochOf,
  feed,
  health,
  isAway,
  Lost,
  numberOf,
  pause,
  send,
  tokenMark,
} from "./api.js";
import { released } from "./dom.js";
import { prefix } from "./keep.js";

const SILENCE = 25_000; // the service says something every 15 s
const FIRST = 6000; // a stream begins with its place at once
const POLL = 4000;
const STREAM_AGAIN = 60_000;
const MANY = 100;
const CAN_SHARE = Boolean(navigator.locks) && "BroadcastChannel" in window;

/**
 * Listen until the page is left. `page.onChanges(changes)` takes them, `onReset()` reads all again,
 * `onState(state)`.
 */
export async function listen(page) {
  for (;;) {
    await visible();
    const left = new AbortController();
    const stop = () => left.abort();
    const stopIfHidden = () => document.hidden && stop();
    document.addEventListener("visibilitychange", stopIfHidden);
    window.addEventListener("token", stop); // tabs with different tokens share nothing
    await (CAN_SHARE ? share(page, left.signal) : lead(page, left.signal, Infinity));
    document.removeEventListener("visibilitychange", stopIfHidden);
    window.removeEventListener("token", stop);
  }
}

async function visible() {
  while (document.hidden) {
    await new Promise((next) =>
      document.addEventListener("visibilitychange", next, { once: true }),
    );
  }
}

/** Wait, at most until the signal comes. */
function wait(delay, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, delay);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Follow the tab that leads, or lead: the tab with the lock does. */
async function share(page, signal) {
  const name = `${prefix}changes ${tokenMark()}`;
  const channel = new BroadcastChannel(name);
  const following = new AbortController();
  signal.addEventListener("abort", () => following.abort());
  const followed = follow(page, channel, following.signal);
  const led = async () => {
    following.abort();
    await followed;
    await lead(telling(page, channel), signal, 0);
  };
  await navigator.locks.request(name, { signal }, led).catch((error) => {
    if (error.name !== "AbortError") throw error;
  });
  await followed;
  channel.close();
}

/** Return a page that also tells the others what it takes. */
function telling(page, channel) {
  return {
    onChanges(changes) {
      channel.postMessage({ changes });
      page.onChanges(changes);
    },
    onReset() {
      channel.postMessage({ changes: [] });
      page.onReset();
    },
    onState(state) {
      channel.postMessage({ state, cursor: feed.cursor });
      page.onState(state);
    },
  };
}

/** Take what the leading tab tells; ask for what it did not tell, and when it says nothing. */
async function follow(page, channel, signal) {
  for (let tries = 0; !signal.aborted;) {
    try {
      if (await catchUp(page)) page.onReset();
      tries = 0;
      page.onState("live");
      await gap(page, channel, signal);
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      page.onState("lost");
      await pause(tries++, signal);
    }
  }
}

/** Take what is told until something is missing. */
function gap(page, channel, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    let silence;
    const end = () => {
      clearTimeout(silence);
      channel.removeEventListener("message", hear);
      resolve();
    };
    const wakeLater = () => {
      clearTimeout(silence);
      silence = setTimeout(end, SILENCE);
    };
    const hear = async ({ data }) => {
      wakeLater();
      await released();
      if (signal.aborted) return;
      if (data.state) page.onState(data.state);
      if (data.cursor && isBehind(data.cursor)) return end();
      if (data.changes && !takeTold(page, data.changes)) end();
    };
    wakeLater();
    channel.addEventListener("message", hear);
    signal.addEventListener("abort", end);
  });
}

/** Whether the leading tab has changes that it did not tell this one. */
const isBehind = (cursor) =>
  feed.cursor &&
  (epochOf(cursor) !== epochOf(feed.cursor) || numberOf(cursor) > numberOf(feed.cursor));

/** Take told changes in; return false if some before them are missing. */
function takeTold(page, changes) {
  if (!feed.cursor) return true; // nothing is shown that a change could change
  if (!changes.length) return false;
  const last = cursorOf(changes.at(-1).tag);
  const mine = numberOf(feed.cursor);
  if (epochOf(last) !== epochOf(feed.cursor) || changes[0].seq > mine + 1) return false;
  const fresh = changes.filter((change) => change.seq > mine);
  if (!fresh.length) return true;
  feed.cursor = last;
  page.onChanges(fresh);
  return true;
}

/** Ask the service until the signal comes: by a stream, or from `noStreamsUntil` on by pages. */
async function lead(page, signal, noStreamsUntil) {
  for (let tries = 0; !signal.aborted;) {
    try {
      if (await catchUp(page)) page.onReset();
      tries = 0;
      if (Date.now() < noStreamsUntil) {
        page.onState("live");
        await wait(POLL, signal);
      } else if (!(await stream(page, signal))) noStreamsUntil = Date.now() + STREAM_AGAIN;
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      page.onState("lost");
      await pause(tries++, signal);
    }
  }
}

let tag = null;

/**
 * Take what came since the cursor, in one page; return whether that was too much, or of another
 * history.
 */
async function catchUp(page) {
  if (!feed.cursor) return false;
  const headers = tag ? { "If-None-Match": tag } : {};
  const mark = tokenMark();
  const {
    status,
    data,
    tag: now,
  } = await send(`changes?limit=${MANY}&after=${feed.cursor}`, { headers });
  if (status === 304) return false;
  if (status === 410) return renew(data.cursor);
  if (status === 401) throw wantsToken(mark);
  if (isAway(status) || status !== 200) throw new Lost(String(status));
  if (data.head > Number.parseInt(data.next, 10)) {
    return renew(`${data.head}.${epochOf(data.next)}`);
  }
  if (data.changes.length) {
    feed.cursor = data.next;
    tag = null;
    page.onChanges(
      data.changes.map((change) => ({ ...change, tag: `"${change.seq}.${epochOf(data.next)}"` })),
    );
  } else tag = now;
  return false;
}

function renew(cursor) {
  feed.cursor = cursor;
  return true;
}

/** Say that a token is wanted, unless another one came since a request was sent with this one. */
function wantsToken(mark) {
  if (mark === tokenMark()) health.set("token");
  return new Lost("token");
}

/** Listen to one stream until it ends; return false if streams do not get through. */
async function stream(page, signal) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, FIRST);
  let began = false;
  try {
    const mark = tokenMark();
    const headers = { Accept: "text/event-stream", ...authorization() };
    const url = new URL(`changes?after=${feed.cursor ?? "now"}`, BASE);
    const response = await fetch(url, {
      headers,
      signal: abort.signal,
      cache: "no-store",
      redirect: "manual",
    });
    if (response.status === 401) throw wantsToken(mark);
    if (!response.ok || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
      return false;
    }
    for await (const events of eventsOf(response.body)) {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE);
      began = true;
      await released();
      take(events, page);
      page.onState("live");
    }
    return true;
  } catch (error) {
    if (error instanceof Lost) throw error;
    if (signal.aborted || began) return true;
    if (error.name === "AbortError") return false;
    throw new Lost(String(error));
  } finally {
    clearTimeout(timer);
    stop();
    signal.removeEventListener("abort", stop);
  }
}

function take(events, page) {
  const changes = [];
  for (const { id, event, data } of events) {
    if (id) feed.cursor = id;
    if (event === "reset") page.onReset();
    if (event === "change") changes.push({ ...JSON.parse(data), tag: `"${id}"` });
  }
  if (changes.length) page.onChanges(changes);
}

/** Yield the events of each piece that arrives, none for a comment. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    yield blocks.map((block) =>
      Object.fromEntries(
        block.split("\n").map((line) => {
          const colon = line.indexOf(": ");
          return [line.slice(0, colon), line.slice(colon + 2)];
        }),
      ),
    );
  }
}
