// The numbers that outside systems have for the stores of the list: a column, as soon as one store
// has some.

import { request } from "./api.js";
import { debounce } from "./dom.js";

const AT_ONCE = 200;

export class Keys {
  /** `onKeys(ids)` is called when the numbers of stores are there, or others than before. */
  constructor(onKeys) {
    this.onKeys = onKeys;
    this.columns = new Set(); // all that were met
    this.clear();
    this.soon = debounce(300, () => this.read([...this.late]));
  }

  clear() {
    this.known = new Map();
    this.late = new Set();
  }

  /** The numbers of a store, each with the column of the file that it came from. */
  of(id) {
    return this.known.get(id) ?? [];
  }

  /** Read those of stores that have changed, some time later. */
  readAgain(id) {
    this.late.add(id);
    this.soon();
  }

  async read(ids) {
    const known = this.known;
    for (const id of ids) this.late.delete(id);
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      const some = ids.slice(from, from + AT_ONCE);
      const { status, data } = await request(`keys?ids=${some.join(",")}`);
      if (status !== 200 || known !== this.known) return; // another list is shown
      const found = new Map();
      for (const key of data.keys) found.set(key.store, [...(found.get(key.store) ?? []), key]);
      const changed = some.filter(
        (id) => JSON.stringify(found.get(id) ?? []) !== JSON.stringify(this.of(id)),
      );
      for (const id of changed) this.known.set(id, found.get(id) ?? []);
      for (const { column } of data.keys) this.columns.add(column);
      if (changed.length) this.onKeys(changed);
    }
  }
}
