// What survives a reload: the token, drafts, unconfirmed writes, the list's cursor. On a shared
// computer it ends with the tab. Where the browser keeps nothing (private windows, full disks), it
// lives as long as the page.

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
const isContent = (value) =>
  isText(value?.name) && (isMissing(value.address) || isText(value.address));
const isBased = ({ base, tag }) =>
  (isMissing(base) || isContent(base)) && (isMissing(tag) || isText(tag));

/** The form of a token. */
export const TOKEN = /^skt_[A-Za-z0-9]{49}$/;

/** What is kept under each name, or under each beginning of one that ends in a colon. */
const SHAPES = new Map([
  ["token", (value) => isText(value) && TOKEN.test(value)],
  ["shortcut", (value) => typeof value === "boolean"],
  ["seen", (value) => isText(value) && /^\d+\.[a-z2-7]{8}$/.test(value)],
  ["draft:", (value) => isContent(value) && isBased(value) && !Number.isNaN(Date.parse(value.at))],
  [
    "pending:",
    (value) =>
      isContent(value?.payload) &&
      isBased(value) &&
      isText(value.key) &&
      isText(value.mark) &&
      Number.isFinite(value.at) &&
      (isMissing(value.cursor) || isText(value.cursor)),
  ],
]);

// Drafts and writes under way belong to one tab: their names end with its own.
const OF_TAB = /^(draft|pending):/;
let tabName = "";
const fullName = (name) => PREFIX + (OF_TAB.test(name) ? `${name}@${tabName}` : name);

/**
 * Return what is kept under a name; what another program, or another version of this page, has kept
 * is as nothing.
 */
export function recall(name, otherwise = null) {
  return memory.has(name) ? memory.get(name) : (read(fullName(name), name) ?? otherwise);
}

function read(key, name) {
  const fits = SHAPES.get(name.replace(/:.*$/, ":"));
  for (const stored of areas) {
    try {
      const value = JSON.parse(stored.getItem(key));
      if (value !== null && fits(value)) return value;
    } catch {
      // It is not JSON.
    }
  }
  return null;
}

export function keep(name, value) {
  memory.delete(name);
  try {
    (isShared() ? tab : computer).setItem(fullName(name), JSON.stringify(value));
  } catch {
    memory.set(name, value);
  }
}

/** Keep for this tab, and as what a new tab begins with. */
export function keepHere(name, value) {
  keep(name, value);
  try {
    tab.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // The memory has it.
  }
}

/** Call `listener` when another tab keeps something under this name, or forgets it. */
export function whenKeptElsewhere(name, listener) {
  window.addEventListener("storage", ({ key }) => key === PREFIX + name && listener());
}

export function forget(name) {
  memory.delete(name);
  for (const stored of areas) stored.removeItem(fullName(name));
}

/** Forget all that this browser has kept in the area of this tab, or in all tabs. */
export function forgetAll() {
  memory.clear();
  for (const [stored, key] of keys()) stored.removeItem(key);
}

function keys() {
  return areas.flatMap((stored) =>
    Array.from({ length: stored.length }, (_, at) => stored.key(at))
      .filter((key) => key?.startsWith(PREFIX))
      .map((key) => [stored, key]),
  );
}

/** The names of all that this tab keeps and that begins with these letters. */
export function kept(beginning) {
  const names = new Set(memory.keys());
  for (const [, key] of keys()) {
    const [name, owner] = key.slice(PREFIX.length).split("@");
    if (!OF_TAB.test(name) || owner === tabName) names.add(name);
  }
  return [...names].filter((name) => name.startsWith(beginning));
}

/**
 * Name this tab, and take over what tabs have left that are no longer there. `living` has the names
 * of those that are.
 */
export function adopt(name, living) {
  tabName = name;
  for (const [stored, key] of keys()) {
    const [left, owner] = key.slice(PREFIX.length).split("@");
    if (!OF_TAB.test(left) || owner === tabName || living.has(owner)) continue;
    const value = read(key, left);
    // Its turn comes when this tab has nothing of its own there.
    if (value === null || recall(left) !== null) continue;
    keep(left, value);
    stored.removeItem(key);
  }
}

/** What a tab keeps apart from the others of its browser. */
export { tab as ofTab, PREFIX as prefix };

export const isShared = () => Boolean(tab.getItem(`${PREFIX}shared`));

/** Say whether this is a computer that others use too: then nothing outlives the tab. */
export function share(shared) {
  if (shared) tab.setItem(`${PREFIX}shared`, "true");
  else tab.removeItem(`${PREFIX}shared`);
}
