// The one dialog that asks for a token, links that bring one, and signing out.

import { ask, button, find, h, say } from "./dom.js";
import { forget, isShared, keep, kept, recall, share } from "./keep.js";
import { health, tokensComeFrom } from "./api.js";
import { words } from "./words.js";

const FORM = /^skt_[A-Za-z0-9]{49}$/;
const waiting = new Set();
let asking = false;

/** Take a token out of the address, where the browser's history and other people's eyes would keep it. */
export function takeFromAddress() {
  const found = /^#token=(.*)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  if (FORM.test(found[1])) use(found[1]);
  else say(words.token.malformed);
}

function use(token) {
  keep("token", token);
  health.set("fine");
  find("token")?.closest("dialog").close(); // it came by a link, or from another tab
  for (const resume of waiting) resume();
  waiting.clear();
  window.dispatchEvent(new Event("token"));
}

/** Ask for a token; what waits for one goes on once there is another. */
export async function askForToken(state = health.state) {
  if (asking) return;
  asking = true;
  const error = h("p", { class: "hint bad", id: "token-error", hidden: true });
  const field = h("input", {
    id: "token", autocomplete: "off", spellcheck: "false", autocapitalize: "off", "aria-describedby": "token-error",
  });
  const shared = h("input", { type: "checkbox", id: "shared", checked: isShared() });
  const lead = state === "readonly" ? words.token.readonly : recall("token") ? words.token.refused : words.token.needed;
  const submit = (event) => {
    const token = field.value.trim();
    if (FORM.test(token)) return;
    event.preventDefault();
    error.textContent = words.token.malformed;
    error.hidden = false;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  };
  const closed = await ask({ title: words.token.title, lead, onsubmit: submit },
    h("div", { class: "field" }, h("label", { for: "token" }, words.token.label), field, error),
    h("label", { class: "check" }, shared, h("span", {}, words.token.shared)),
    h("div", { class: "actions" },
      h("button", { class: "primary", value: "use" }, words.token.use),
      button(words.cancel, (event) => event.target.closest("dialog").close())));
  asking = false;
  if (closed !== "use") return;
  forget("token");
  share(shared.checked);
  use(field.value.trim());
}

export function signOut() {
  forget("token");
  if (isShared()) for (const name of kept("")) forget(name);
  location.replace(location.pathname);
}

tokensComeFrom((state) => {
  const another = new Promise((resolve) => waiting.add(resolve));
  if (!find("token")) askForToken(state);
  return another;
});
// Another tab signed in, or out.
window.addEventListener("storage", (event) => {
  if (event.key?.endsWith(" token") && event.newValue) use(recall("token"));
});
window.addEventListener("hashchange", takeFromAddress);
