// Changes of others as they happen: the feed's events through `fetch`, which can send a token, and pages with their
// tags where events do not get through. A hidden tab asks nothing, so that many tabs never use up the connections.

import { authorization, BASE, epochOf, feed, health, isAway, Lost, pause, send, tokenMark } from "./api.js";

const SILENCE = 25_000; // the service says something every 15 s
const FIRST = 6000; // a stream begins with its place at once
const POLL = 4000;
const STREAM_AGAIN = 60_000;
const MANY = 100;

/** Listen until the page is left. `onChanges(changes)` takes them, `onReset()` reads everything anew. */
export async function listen({ onChanges, onReset, onState }) {
  let noStreamsUntil = 0;
  for (let tries = 0; ; ) {
    await visible();
    try {
      if (await catchUp(onChanges, onReset)) onReset();
      tries = 0;
      if (Date.now() < noStreamsUntil) {
        onState("live");
        await wait(POLL);
      } else if (!(await stream(onChanges, onReset, onState))) noStreamsUntil = Date.now() + STREAM_AGAIN;
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      onState("lost");
      await pause(tries++);
    }
  }
}

const wait = (delay) => new Promise((resolve) => setTimeout(resolve, delay));

async function visible() {
  while (document.hidden) await new Promise((next) => document.addEventListener("visibilitychange", next, { once: true }));
}

let tag = null;

/** Take what came since the cursor, in one page; return whether that was too much, or of another history. */
async function catchUp(onChanges, onReset) {
  if (!feed.cursor) return false;
  const headers = tag ? { "If-None-Match": tag } : {};
  const mark = tokenMark();
  const { status, data, tag: now } = await send(`changes?limit=${MANY}&after=${feed.cursor}`, { headers });
  if (status === 304) return false;
  if (status === 410) return renew(data.cursor);
  if (status === 401) throw wantsToken(mark);
  if (isAway(status) || status !== 200) throw new Lost(String(status));
  if (data.head > Number.parseInt(data.next, 10)) return renew(`${data.head}.${epochOf(data.next)}`);
  if (data.changes.length) {
    feed.cursor = data.next;
    tag = null;
    onChanges(data.changes.map((change) => ({ ...change, tag: `"${change.seq}.${epochOf(data.next)}"` })));
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
async function stream(onChanges, onReset, onState) {
  const abort = new AbortController();
  const stop = () => document.hidden && abort.abort();
  const renewed = () => abort.abort();
  document.addEventListener("visibilitychange", stop);
  window.addEventListener("token", renewed);
  let timer = setTimeout(() => abort.abort(), FIRST);
  let began = false;
  try {
    const mark = tokenMark();
    const headers = { Accept: "text/event-stream", ...authorization() };
    const url = new URL(`changes?after=${feed.cursor ?? "now"}`, BASE);
    const response = await fetch(url, { headers, signal: abort.signal, cache: "no-store" });
    if (response.status === 401) throw wantsToken(mark);
    if (!response.ok || !response.headers.get("content-type")?.startsWith("text/event-stream")) return false;
    for await (const events of eventsOf(response.body)) {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENCE);
      began = true;
      onState("live");
      take(events, onChanges, onReset);
    }
    return true;
  } catch (error) {
    if (error instanceof Lost) throw error;
    if (document.hidden || began) return true;
    if (error.name === "AbortError") return false;
    throw new Lost(String(error));
  } finally {
    clearTimeout(timer);
    abort.abort();
    document.removeEventListener("visibilitychange", stop);
    window.removeEventListener("token", renewed);
  }
}

function take(events, onChanges, onReset) {
  const changes = [];
  for (const { id, event, data } of events) {
    if (id) feed.cursor = id;
    if (event === "reset") onReset();
    if (event === "change") changes.push({ ...JSON.parse(data), tag: `"${id}"` });
  }
  if (changes.length) onChanges(changes);
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
    yield blocks.map((block) => Object.fromEntries(block.split("\n").map((line) => {
      const colon = line.indexOf(": ");
      return [line.slice(0, colon), line.slice(colon + 2)];
    })));
  }
}
