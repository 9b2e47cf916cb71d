// What survives a reload: the token, drafts, unconfirmed writes, the list's cursor. On a shared computer it ends with
// the tab. Where the browser keeps nothing (private windows, full disks), it lives as long as the page.

const PREFIX = `storekeeper ${new URL(".", location.href).pathname} `;
const memory = new Map();

function area(kind) {
  try {
    return kind === "tab" ? sessionStorage : localStorage;
  } catch {
    return { getItem: () => null, setItem: () => {}, removeItem: () => {}, length: 0 };
  }
}

export function recall(name, otherwise = null) {
  for (const kind of ["tab", "computer"]) {
    try {
      const text = area(kind).getItem(PREFIX + name);
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
    area(isShared() ? "tab" : "computer").setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // It stays in `memory`.
  }
}

export function forget(name) {
  memory.delete(name);
  for (const kind of ["tab", "computer"]) area(kind).removeItem(PREFIX + name);
}

/** The names of all that is kept and begins with these letters. */
export function kept(beginning) {
  const names = new Set(memory.keys());
  for (const kind of ["tab", "computer"]) {
    const stored = area(kind);
    for (let at = 0; at < stored.length; at++) {
      if (stored.key(at).startsWith(PREFIX)) names.add(stored.key(at).slice(PREFIX.length));
    }
  }
  return [...names].filter((name) => name.startsWith(beginning));
}

export const isShared = () => Boolean(area("tab").getItem(`${PREFIX}shared`));

/** Say whether this is a computer that others use too: then nothing outlives the tab. */
export function share(shared) {
  if (shared) area("tab").setItem(`${PREFIX}shared`, "true");
  else area("tab").removeItem(`${PREFIX}shared`);
}
