// The line at the bottom, where it moves nothing: what stands in the way, what to do, and what
// continues by itself.

import { health, needToken } from "./api.js";
import { button, find, h, icon, released } from "./dom.js";
import { recall } from "./keep.js";
import { words } from "./words.js";

let message = null;
let timer;

/** Show a message of the moment; `action` is a button or a link. */
export function notify(text, action = null, duration = 12_000) {
  clearTimeout(timer);
  message = { text, action };
  timer = setTimeout(hush, duration);
  draw();
}

/** Take the message of the moment away. */
export async function hush() {
  await released();
  clearTimeout(timer);
  message = null;
  draw();
}

function draw() {
  const node = find("notice");
  const token = button(words.token.give, () => needToken(health.state), { class: "small" });
  const close = button(icon("close"), hush, {
    class: "quiet square small",
    "aria-label": words.close,
  });
  const reload = button(words.proxy.reload, () => location.reload(), { class: "small" });
  const states = {
    offline: ["warn", words.notices.offline],
    away: ["warn", words.notices.away(health.reason)],
    proxy: ["warn", words.proxy.signIn, reload],
    token: ["warn", recall("token") ? words.notices.refused : words.notices.token, token],
    readonly: ["warn", words.notices.readonly, token],
  };
  const news = message ? ["info", message.text, message.action] : [];
  const [kind, text, action] = states[health.state] ?? news;
  node.hidden = !text;
  node.className = `notice ${kind}`;
  if (!text) return node.replaceChildren();
  const parts = [
    kind === "warn" && icon("alert"),
    h("span", {}, text),
    action,
    kind === "info" && close,
  ];
  node.replaceChildren(...parts.filter(Boolean));
}

health.listeners.add(draw);
