// The one dialog that asks for a token, links that bring one, and signing out.

import { ask, button, dismiss, find, h } from "./dom.js";
import {
  forget,
  forgetAll,
  isShared,
  keep,
  recall,
  share,
  TOKEN,
  whenKeptElsewhere,
} from "./keep.js";
import { health, isAway, Lost, pause, send, tokensComeFrom } from "./api.js";
import { notify } from "./notice.js";
import { words } from "./words.js";

const waiting = new Set();
let asking = false;
let considered = Promise.resolve(); // ends once no token of an address is left to decide on

/**
 * Take a token out of the address, where the browser's history and other people's eyes would keep
 * it.
 */
export function takeFromAddress() {
  const found = /^#token=(.*)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  const [, token] = found;
  const mine = recall("token");
  if (!TOKEN.test(token)) notify(words.token.malformed);
  else if (!mine || mine === token) use(token);
  else considered = considered.then(() => consider(token));
}

/**
 * Use the token of a link, to which any page can lead: in the place of one that works only if the
 * person agrees.
 */
async function consider(token) {
  const mine = recall("token");
  if (!(await works(token))) return notify(words.token.notTaken);
  if (mine && (await works(mine)) && !(await agreed())) return;
  if (recall("token") === mine) use(token);
}

/** Return whether the service knows a token. */
async function works(token) {
  for (let tries = 0; ; tries++) {
    const headers = { Authorization: `Bearer ${token}` };
    const response = await send("stores?limit=1", { headers }).catch((error) => {
      if (!(error instanceof Lost)) throw error;
    });
    if (response && !isAway(response.status)) return response.status !== 401;
    await pause(tries);
  }
}

async function agreed() {
  const answer = await ask(
    { title: words.token.another, lead: words.token.anotherWhy },
    h(
      "div",
      { class: "actions" },
      h("button", { class: "primary", value: "keep" }, words.token.keepMine),
      h("button", { value: "use" }, words.token.useOther),
    ),
  );
  return answer === "use";
}

function use(token) {
  keep("token", token);
  health.set("fine");
  dismiss(find("token")); // it came by a link, or from another tab
  for (const resume of waiting) resume();
  waiting.clear();
  window.dispatchEvent(new Event("token"));
}

const whyAsked = () => (recall("token") ? "refused" : "needed");

/** Ask for a token; what waits for one continues once there is another. */
export async function askForToken(state = health.state) {
  if (asking) return;
  asking = true;
  const error = h("p", { class: "hint bad", id: "token-error", hidden: true });
  const field = h("input", {
    id: "token",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
    "aria-describedby": "token-error",
  });
  const shared = h("input", { type: "checkbox", id: "shared", checked: isShared() });
  const lead = state === "readonly" ? words.token.readonly : words.token[whyAsked()];
  const submit = (event) => {
    const token = field.value.trim();
    if (TOKEN.test(token)) return;
    event.preventDefault();
    error.textContent = words.token.malformed;
    error.hidden = false;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  };
  const closed = await ask(
    { title: words.token.title, lead, onsubmit: submit },
    h("div", { class: "field" }, h("label", { for: "token" }, words.token.label), field, error),
    h("label", { class: "check" }, shared, h("span", {}, words.token.shared)),
    h(
      "div",
      { class: "actions" },
      h("button", { class: "primary", value: "use" }, words.token.use),
      button(words.cancel, (event) => dismiss(event.target)),
    ),
  );
  asking = false;
  if (closed !== "use") return;
  forget("token");
  share(shared.checked);
  use(field.value.trim());
}

export function signOut() {
  forget("token");
  if (isShared()) forgetAll();
  location.replace(location.pathname);
}

tokensComeFrom((state) => {
  const another = new Promise((resolve) => waiting.add(resolve));
  considered.then(() => {
    if (waiting.size && !find("token")) askForToken(state);
  });
  return another;
});
// Another tab signed in, or out.
whenKeptElsewhere("token", () => {
  const token = recall("token");
  if (token) use(token);
  else location.reload();
});
window.addEventListener("hashchange", takeFromAddress);
