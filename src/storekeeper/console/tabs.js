// The tabs of one browser: each has a name, which a reload keeps and a copy of the tab does not
// get. What tabs that are gone have left unsaved is taken over by the next one.

import { newKey } from "./api.js";
import { adopt, ofTab, prefix } from "./keep.js";

const RELEASE = 500; // milliseconds until a page that is loaded again has let go of its name
const ANSWERS = 200; // milliseconds within which other tabs say that they are there
const NAME = `${prefix}tab`;

let name = "";
const channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;
channel?.addEventListener("message", ({ data }) => {
  if (data === "who") channel.postMessage({ here: name });
});

/** Name this tab, and take over what is left of tabs that are gone. */
export async function nameTab() {
  const known = ofTab.getItem(NAME);
  name = known && (await hold(known)) ? known : newKey();
  if (name !== known) await hold(name);
  try {
    ofTab.setItem(NAME, name);
  } catch {
    // A reload gives it another name.
  }
  await takeOver();
}

/** Take over what tabs have left that are gone by now. */
export async function takeOver() {
  adopt(name, await living());
}

/** Hold a name as long as this page is there; return whether no other tab has it. */
async function hold(wanted) {
  if (!navigator.locks) return !(await living()).has(wanted);
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(RELEASE);
    navigator.locks
      .request(`${NAME} ${wanted}`, { signal }, () => new Promise(() => resolve(true)))
      .catch(() => resolve(false));
  });
}

/** The names of the tabs that are there. */
async function living() {
  if (navigator.locks) {
    const { held } = await navigator.locks.query();
    return new Set(
      held
        .filter((lock) => lock.name.startsWith(`${NAME} `))
        .map((lock) => lock.name.slice(NAME.length + 1)),
    );
  }
  const found = new Set();
  const listen = ({ data }) => data.here && found.add(data.here);
  channel?.addEventListener("message", listen);
  channel?.postMessage("who");
  await new Promise((resolve) => setTimeout(resolve, channel ? ANSWERS : 0));
  channel?.removeEventListener("message", listen);
  return found;
}
