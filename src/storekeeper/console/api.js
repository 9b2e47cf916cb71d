// Requests to the service. `request` goes on by itself until a response comes; a store's write is `outbox.js`'s to repeat.

import { recall } from "./keep.js";

export const BASE = new URL("../api/", location.href);
const TIMEOUT = 8000;
const SOONER = ["online", "token"]; // events that end a pause
const PAUSES = [500, 1000, 2000, 4000, 8000, 15000];

/** No response came: a write may have been done, or not. */
export class Lost extends Error {}

/** What the service is to us: "fine", "offline" (no response), "away" (503), "token" (401), "readonly" (403). */
export const health = {
  state: "fine",
  reason: "",
  listeners: new Set(),
  set(state, reason = "") {
    if (state === this.state && reason === this.reason) return;
    [this.state, this.reason] = [state, reason];
    for (const listener of this.listeners) listener();
  },
};

/** The cursor behind the last change that this page knows of. */
export const feed = { cursor: null };

let askForToken = () => new Promise(() => {});
/** Who asks for a token when the service wants one: returns a promise of the moment at which another is there. */
export const tokensComeFrom = (ask) => (askForToken = ask);
export const needToken = (state) => {
  health.set(state);
  return askForToken(state);
};

/** A token's last letters, which are its checksum: enough to know whether it is the same one. */
export const tokenMark = () => recall("token", "").slice(-6);

export function authorization() {
  const token = recall("token", "");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Send a request once. Raises Lost if no response came, AbortError if `signal` ended it. */
export async function send(path, { method = "GET", body, headers = {}, signal, timeout = TIMEOUT } = {}) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  signal?.addEventListener("abort", stop);
  const timer = setTimeout(stop, timeout);
  try {
    const response = await fetch(new URL(path, BASE), {
      method,
      body,
      headers: { ...authorization(), ...headers },
      signal: abort.signal,
    });
    const type = response.headers.get("content-type") ?? "";
    const data = method === "HEAD" ? null : type.includes("json") ? await response.json() : await response.blob();
    const { status } = response;
    if (status === 503) health.set("away", data?.message);
    else if (status !== 401 && status !== 403) health.set("fine");
    return { status, data, tag: response.headers.get("etag"), headers: response.headers };
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    health.set("offline");
    throw new Lost(String(error));
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** Wait before the next try; less long if the network comes back meanwhile. */
export function pause(tries) {
  return new Promise((resolve) => {
    const again = () => {
      clearTimeout(timer);
      for (const name of SOONER) window.removeEventListener(name, again);
      resolve();
    };
    const timer = setTimeout(again, PAUSES[Math.min(tries, PAUSES.length - 1)]);
    for (const name of SOONER) window.addEventListener(name, again);
  });
}

export const isAway = (status) => status === 502 || status === 503 || status === 504;

/** What a response lacks: "token", a good one; "readonly", one that may write; or null. */
export const lack = (status, method) => (status === 401 ? "token" : status === 403 && method ? "readonly" : null);

/** Send, after an outage or with another token again, until a response comes that says something. */
export async function request(path, options = {}) {
  for (let tries = 0; ; tries++) {
    options.signal?.throwIfAborted();
    const mark = tokenMark();
    const response = await send(path, options).catch((error) => {
      if (!(error instanceof Lost)) throw error;
    });
    const lacks = lack(response?.status, options.method);
    if (lacks && mark !== tokenMark()) continue; // another token came while this one was on its way
    if (lacks) await needToken(lacks);
    else if (!response || isAway(response.status)) await pause(tries);
    else return response;
  }
}

/** The cursor of an entity tag, also of one that a proxy marked; and the epoch of a cursor. */
export const cursorOf = (tag) => tag.replace(/^W\/|"/g, "");
export const epochOf = (cursor) => cursor.split(".")[1];

/** Letters at random, also over plain HTTP, where there is no crypto.randomUUID. */
export const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
