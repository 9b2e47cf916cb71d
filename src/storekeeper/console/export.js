// The list as a file, as it is found.

import { send } from "./api.js";
import { download, say } from "./dom.js";
import { notify } from "./notice.js";
import { words } from "./words.js";

export async function exportAs(format, q) {
  say(words.list.exporting);
  const query = new URLSearchParams({ format, ...(q && { q }) });
  try {
    const { status, data } = await send(`export?${query}`, { timeout: 120_000 });
    if (status === 200) download(`stores.${format}`, data);
    else notify(data.message ?? words.notices.failed);
  } catch {
    notify(words.notices.failed);
  }
}
