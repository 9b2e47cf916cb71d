// Who the user is to the service, and may do what: asked at the start, and when another token
// comes.

import { isAway, latest, pause, send } from "./api.js";

/** `scope` is "write" until the service says otherwise: what it refuses, it refuses by itself. */
export const me = { name: null, scope: "write", listeners: new Set() };

const begin = latest();

/** Ask the service who the user is, until it says so, or another token comes. */
export async function findOutWhoIAm() {
  const isLatest = begin();
  let response;
  for (let tries = 0; !response; tries++) {
    if (tries) await pause(tries - 1);
    if (!isLatest()) return;
    response = await send("me").catch(() => null);
    if (isAway(response?.status)) response = null;
  }
  const { status, data } = response;
  if (status !== 200 || !isLatest()) return;
  Object.assign(me, { name: data.name, scope: data.scope });
  document.body.classList.toggle("reader", me.name !== null && me.scope === "read");
  for (const listener of me.listeners) listener();
}

window.addEventListener("token", findOutWhoIAm);
