// Who the user is to the service, and may do what: asked at the start, and when another token
// comes.

import { send } from "./api.js";

/** `scope` is "write" until the service says otherwise: what it refuses, it refuses by itself. */
export const me = { name: null, scope: "write", listeners: new Set() };

/** Ask the service who the user is. */
export async function findOutWhoIAm() {
  const { status, data } = await send("me").catch(() => ({}));
  if (status !== 200) return;
  Object.assign(me, { name: data.name, scope: data.scope });
  document.body.classList.toggle("reader", me.name !== null && me.scope === "read");
  for (const listener of me.listeners) listener();
}

window.addEventListener("token", findOutWhoIAm);
