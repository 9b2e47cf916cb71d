// What survives a reload: the token, drafts, unconfirmed writes, the list's cursor. On a shared computer it ends with
// the tab. Where the browser keeps nothing (private windows, full disks), it lives as long as the page.

const PREFIX = `storekeeper ${new URL(".", location.href).pathname} `;
const memory = new Map();

const NOTHING = {
  getItem: () => null,
  setItem: () => {
    throw new Error("nothing is kept");
  },
  removeItem: () => {},
  length: 0,
};
const area = (name) => {
  try {
    return window[name];
  } catch {
    return NOTHING;
  }
};
const [tab, computer] = [area("sessionStorage"), area("localStorage")];
const areas = [tab, computer];

const isText = (value) => typeof value === "string";
const isMissing = (value) => value === null || value === undefined;
const isContent = (value) => isText(value?.name) && (isMissing(value.address) || isText(value.address));
const isBased = ({ base, tag }) => (isMissing(base) || isContent(base)) && (isMissing(tag) || isText(tag));

/** The form of a token. */
export const TOKEN = /^skt_[A-Za-z0-9]{49}$/;

/** What is kept under each name, or under each beginning of one that ends in a colon. */
const SHAPES = new Map([
  ["token", (value) => isText(value) && TOKEN.test(value)],
  ["shortcut", (value) => typeof value === "boolean"],
  ["seen", (value) => isText(value) && /^\d+\.[a-z2-7]{8}$/.test(value)],
  ["draft:", (value) => isContent(value) && isBased(value) && !Number.isNaN(Date.parse(value.at))],
  ["pending:", (value) =>
    isContent(value?.payload) && isBased(value) && isText(value.key) && isText(value.mark) &&
    Number.isFinite(value.at) && (isMissing(value.cursor) || isText(value.cursor))],
]);

/** Return what is kept under a name; what another program, or another version of this page, has kept is as nothing. */
export function recall(name, otherwise = null) {
  if (memory.has(name)) return memory.get(name);
  const fits = SHAPES.get(name.replace(/:.*$/, ":"));
  for (const stored of areas) {
    try {
      const value = JSON.parse(stored.getItem(PREFIX + name));
      if (value !== null && fits(value)) return value;
    } catch {
      // It is no JSON.
    }
  }
  return otherwise;
}

export function keep(name, value) {
  memory.delete(name);
  try {
    (isShared() ? tab : computer).setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    memory.set(name, value);
  }
}

/** Call `listener` when another tab keeps something under this name, or forgets it. */
export function whenKeptElsewhere(name, listener) {
  window.addEventListener("storage", ({ key }) => key === PREFIX + name && listener());
}

export function forget(name) {
  memory.delete(name);
  for (const stored of areas) stored.removeItem(PREFIX + name);
}

/** The names of all that is kept and begins with these letters. */
export function kept(beginning) {
  const names = new Set(memory.keys());
  for (const stored of areas) {
    for (let at = 0; at < stored.length; at++) {
      if (stored.key(at).startsWith(PREFIX)) names.add(stored.key(at).slice(PREFIX.length));
    }
  }
  return [...names].filter((name) => name.startsWith(beginning));
}

export const isShared = () => Boolean(tab.getItem(`${PREFIX}shared`));

/** Say whether this is a computer that others use too: then nothing outlives the tab. */
export function share(shared) {
  if (shared) tab.setItem(`${PREFIX}shared`, "true");
  else tab.removeItem(`${PREFIX}shared`);
}
