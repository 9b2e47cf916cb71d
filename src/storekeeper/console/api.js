// Requests to the service. `request` repeats by itself until a response comes; a store's write is
// `outbox.js`'s to repeat.

import { released } from "./dom.js";
import { recall } from "./keep.js";
import { words } from "./words.js";

export const BASE = new URL("../api/", location.href);
const TIMEOUT = 8000;
export const IMPORT_TIMEOUT = 130_000;
export const MAX_PAGE = 1000; // stores of a page, the most that the service sends
const SOONER = ["online", "token"]; // events that end a pause
const PAUSES = [500, 1000, 2000, 4000, 8000, 15000];
// From a proxy these are outages: the service says such things in JSON.
const PASSING = [404, 408, 425, 429];
const PAGES = [401, 412]; // 412: what nginx makes of a login page and our If-Match
const REFUSED = 0;
const JSON_TYPE = /^application\/([\w.-]+\+)?json\b/;

/** No response of the service came: a write may have been done, or not. */
export class Lost extends Error {}

/**
 * What the service is to us: "fine", "offline" (no response), "away" (it cannot respond now),
 * "proxy" (a login page came instead of its response), "token" (401), "readonly" (403).
 */
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

/** The cursor after the last change that this page knows. */
export const feed = { cursor: null };

let askForToken = () => new Promise(() => {});
/**
 * Who asks for a token when the service wants one: returns a promise of the moment at which another
 * is there.
 */
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

/**
 * Send a request once, for JSON or for a file whose media type `expects` describes. Raises Lost if
 * no response of the service came, AbortError if `signal` ended it.
 */
export async function send(
  path,
  { method = "GET", body, headers = {}, signal, timeout = TIMEOUT, expects, onProgress } = {},
) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  signal?.addEventListener("abort", stop);
  const timer = setTimeout(stop, timeout);
  let response;
  try {
    const carry = onProgress ? (url, options) => upload(url, options, onProgress) : fetch;
    response = await carry(new URL(path, BASE), {
      method,
      body,
      headers: { ...authorization(), ...headers },
      signal: abort.signal,
      redirect: "manual", // the API has no redirects: one leads to a login page
    });
    response = await understood(response, method, expects);
  } catch (error) {
    response = { state: "offline", error };
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
  await released();
  signal?.throwIfAborted();
  if (response.state) health.set(response.state, response.reason);
  if (response.status === undefined) throw new Lost(String(response.error ?? response.state));
  return response;
}

/** Send as `fetch` does, and call `onProgress(sent, all)` on the way, which `fetch` cannot. */
function upload(url, { method, body, headers, signal }, onProgress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open(method, url);
    for (const [name, value] of Object.entries(headers)) sending.setRequestHeader(name, value);
    sending.responseType = "blob";
    sending.upload.onprogress = ({ loaded, total }) => onProgress(loaded, total);
    sending.upload.onload = ({ total }) => onProgress(total, total);
    sending.onerror = sending.onabort = () => reject(new TypeError("no response"));
    sending.onload = () => {
      // A redirect led to a login page.
      if (sending.responseURL !== url.href) return resolve(Response.error());
      const fields = sending
        .getAllResponseHeaders()
        .trim()
        .split(/\r?\n/)
        .map((line) => line.split(/: ?(.*)/, 2));
      resolve(
        new Response(sending.response, {
          status: sending.status,
          headers: fields.filter(([name]) => name),
        }),
      );
    };
    signal.addEventListener("abort", () => sending.abort());
    sending.send(body);
  });
}

/**
 * Return what a response says, and the state of the service that follows from it; without a status
 * if it is not its.
 */
async function understood(response, method, expects) {
  const { status, headers } = response;
  const type = headers.get("content-type") ?? "";
  const said = { status, tag: headers.get("etag"), headers, state: stateOf(status) };
  if (status === 304) return { ...said, data: null };
  if (expects && status === 200) {
    return expects.test(type) ? { ...said, data: await response.blob() } : ofProxy(response);
  }
  if (!JSON_TYPE.test(type)) return ofProxy(response);
  const data = method === "HEAD" ? null : await response.json();
  if (status >= 400 && method !== "HEAD" && typeof data?.message !== "string") {
    return ofProxy(response);
  }
  return { ...said, data, reason: status === 503 ? data?.message : "" };
}

function stateOf(status) {
  if (status === 503) return "away";
  return status === 401 || status === 403 ? null : "fine";
}

/**
 * What a response means that a proxy made, and not the service: a login page, a refusal that stays
 * one, or an outage.
 */
function ofProxy({ status, headers }) {
  if (status < 400 || PAGES.includes(status)) return { state: "proxy" }; // 0 is a redirect
  if (status >= 500 || PASSING.includes(status)) {
    return { state: "away", reason: words.proxy.away(status) };
  }
  return { status: REFUSED, headers, tag: null, data: { message: words.proxy.refused(status) } };
}

/** Wait before the next try; less long if the network comes back meanwhile, or the signal comes. */
export function pause(tries, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const again = () => {
      clearTimeout(timer);
      for (const name of SOONER) window.removeEventListener(name, again);
      resolve();
    };
    const timer = setTimeout(again, PAUSES[Math.min(tries, PAUSES.length - 1)]);
    for (const name of SOONER) window.addEventListener(name, again);
    signal?.addEventListener("abort", again);
  });
}

export const isAway = (status) => status === 502 || status === 503 || status === 504;

/** What a request lacked: "token", a valid one; "readonly", one that may write; or null. */
export function lack(status, method) {
  if (status === 401) return "token";
  return status === 403 && method ? "readonly" : null;
}

/**
 * Send, after an outage or with another token again, until a response comes that says something.
 */
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

/**
 * Load a part of the page that is not always needed; try again until it comes, which it does not
 * while a proxy shows its login page.
 */
export async function part(name) {
  for (let tries = 0; ; tries++) {
    try {
      // Browsers remember what could not be loaded.
      const loaded = await import(tries ? `${name}?again=${tries}` : name);
      if (tries) health.set("fine");
      return loaded;
    } catch {
      health.set("offline");
      await pause(tries);
    }
  }
}

/**
 * Return a function that tells whether its latest call is still the latest one: what came late is
 * dropped.
 */
export function latest() {
  let run = 0;
  return () => {
    const mine = ++run;
    return () => mine === run;
  };
}

/** The query of the page after a response with these fields, undefined after the last page. */
export const nextOf = (headers) => /\?([^>]*)>; *rel="?next/.exec(headers.get("link") ?? "")?.[1];

/**
 * The cursor of an entity tag, also of one that a proxy marked; its number, and the epoch of a
 * cursor.
 */
export const cursorOf = (tag) => tag.replace(/^W\/|"/g, "");
export const numberOf = (tag) => Number.parseInt(cursorOf(tag ?? "0"), 10);
export const epochOf = (cursor) => cursor.split(".")[1];

/** Whether an entity tag is of a later version than another, or of another history. */
export const isNewer = (tag, than) =>
  !than || epochOf(cursorOf(tag)) !== epochOf(cursorOf(than)) || numberOf(tag) > numberOf(than);

/** Letters at random, also over plain HTTP, where there is no crypto.randomUUID. */
export const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
