// What survives a reload: the token, drafts, unconfirmed writes, the list's cursor. On a shared computer it ends with
// the tab. Where the browser keeps nothing (private windows, full disks), it lives as long as the page.

const PREFIX = `storekeeper ${new URL(".", location.href).pathname} `;
const memory = new Map();

const NOTHING = { getItem: () => null, setItem: () => {}, removeItem: () => {}, length: 0 };
const area = (name) => {
  try {
    return window[name];
  } catch {
    return NOTHING;
  }
};
const [tab, computer] = [area("sessionStorage"), area("localStorage")];
const areas = [tab, computer];

export function recall(name, otherwise = null) {
  for (const stored of areas) {
    try {
      const text = stored.getItem(PREFIX + name);
      if (text !== null) return JSON.parse(text);
    } catch {
      // Somebody else wrote it: as if nothing was there.
    }
  }
  return memory.has(name) ? memory.get(name) : otherwise;
}

export function keep(name, value) {
  memory.set(name, value);
  try {
    (isShared() ? tab : computer).setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // It stays in `memory`.
  }
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
