// A client of the service, for browsers and Node: the calls of `storekeeper.client`. Copy it; `client.d.ts` has its types.
//
//   const stores = new Stores("http://127.0.0.1:8080", { token });
//   await stores.edit(3, (store) => ({ ...store, name: "Airport" }));
//
// What may be lost on the way is sent again, a write with its key, so that it is done once.

const PAUSES = [0.2, 0.5, 1, 2, 5];
const AWAY = [502, 503, 504];

/** The service refused a request, and nothing was changed; or (`status` 0) it gave no response that says what happened. */
export class Refused extends Error {
  constructor(message, status, { keys = [], key = null } = {}) {
    super(message);
    Object.assign(this, { status, keys, key });
  }
}

const wait = (seconds) => new Promise((resume) => setTimeout(resume, 1000 * seconds));
const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const content = ({ name, address }) => JSON.stringify({ name, address: address ?? undefined });

export class Stores {
  #base;
  #token;
  #patience;

  constructor(url, { token = null, patience = 60 } = {}) {
    this.#base = url.replace(/\/$/, "");
    this.#token = token;
    this.#patience = patience;
  }

  /** All stores, as of one moment. */
  async list() {
    const { data } = await this.#send("GET", "/api/changes?after=now");
    const stores = [];
    for (let after = 0; ; after = stores.at(-1).id) {
      const page = await this.#send("GET", `/api/stores?limit=1000&at=${data.next}&after=${after}`);
      stores.push(...page.data);
      if (page.data.length < 1000) return stores;
    }
  }

  /** Up to `limit` stores that have all these words in name or address. */
  async search(words, limit = 50) {
    return (await this.#send("GET", `/api/stores?limit=${limit}&q=${encodeURIComponent(words)}`)).data;
  }

  async get(id) {
    return (await this.#send("GET", `/api/stores/${id}`)).data;
  }

  /** Add a store, once. To repeat it later, after an error without a status, keep the key. */
  async create(store, key = newKey()) {
    return (await this.#send("POST", "/api/stores", { key, body: content(store) })).data;
  }

  /** Replace a store with what `change` returns of it; again if another client saves first. */
  async edit(id, change) {
    for (;;) {
      const { data: store, tag } = await this.#send("GET", `/api/stores/${id}`);
      const body = content({ ...store, ...(await change({ ...store })) });
      if (body === content(store)) return store;
      try {
        return (await this.#send("PUT", `/api/stores/${id}`, { key: newKey(), tag, body })).data;
      } catch (error) {
        if (error.status !== 412) throw error;
      }
    }
  }

  async #send(method, path, { key = null, tag = null, body } = {}) {
    const headers = {};
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    if (key) Object.assign(headers, { "Content-Type": "application/json", "Idempotency-Key": key });
    if (tag) headers["If-Match"] = tag;
    const until = Date.now() + 1000 * this.#patience;
    let reason = "no response";
    for (let attempt = 0; ; attempt++) {
      try {
        const response = await fetch(this.#base + path, { method, headers, body, signal: AbortSignal.timeout(10_000) });
        const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
        const data = isJson ? await response.json() : null;
        reason = data?.message ?? `status ${response.status}`;
        if (response.ok && isJson) return { data, tag: response.headers.get("etag") };
        if (!response.ok && !AWAY.includes(response.status)) {
          throw new Refused(reason, response.status, { keys: data?.validation?.keys });
        }
      } catch (error) {
        if (error instanceof Refused) throw error;
        reason = String(error);
      }
      if (Date.now() >= until) throw new Refused(reason, 0, { key });
      await wait(PAUSES[Math.min(attempt, PAUSES.length - 1)]);
    }
  }
}
