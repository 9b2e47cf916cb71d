// Stores as a file: those that the list shows, or those that are ticked.

import { MAX_PAGE, nextOf, send } from "./api.js";
import { download, say } from "./dom.js";
import { queryOf } from "./filters.js";
import { notify } from "./notice.js";
import { MAX_TICKS } from "./ticks.js";
import { words } from "./words.js";

const FILES = /^(text\/csv|application\/vnd\.openxml)/;

/** Save all stores that a list shows, also those that were not read yet. */
export async function saveShown(format, wanted) {
  say(words.list.exporting);
  const { q, bare, twins, since } = wanted;
  if (!bare && !twins && !since) return save(format, q && { q });
  const ids = await idsOf(wanted).catch(() => null);
  if (!ids) return notify(words.notices.failed);
  if (!ids.length) return notify(words.list.nothingFits);
  if (ids.length > MAX_TICKS) return notify(words.list.tooMany(MAX_TICKS));
  await save(format, { ids: ids.join(",") });
}

/** Save the stores that are ticked. */
export async function saveTicked(format, ids) {
  say(words.list.exporting);
  await save(format, { ids: ids.join(",") }, `stores-ticked.${format}`);
}

/**
 * The ids of all stores that a filtered list has, ascending; null if they cannot be read. An export
 * takes no filter.
 */
async function idsOf(wanted) {
  const ids = [];
  let query = await queryOf({ ...wanted, sort: "id" }, MAX_PAGE);
  while (query && ids.length <= MAX_TICKS) {
    const { status, data, headers } = await send(`stores?${query}`);
    if (status !== 200) return null;
    ids.push(...data.map(({ id }) => id));
    query = nextOf(headers);
  }
  return ids;
}

async function save(format, which, name = "") {
  const query = new URLSearchParams({ format, ...(format === "csv" && { bom: "true" }), ...which });
  const { status, data, headers } = await send(`export?${query}`, {
    timeout: 120_000,
    expects: FILES,
  }).catch(() => ({}));
  if (status !== 200) return notify(data?.message ?? words.notices.failed);
  const named = /filename="([^"]+)"/.exec(headers.get("content-disposition") ?? "");
  download(name || (named?.[1] ?? `stores.${format}`), data);
  const formulas = Number(headers.get("formula-cells"));
  if (formulas) notify(words.list.formulas(formulas));
}
