// The console: puts the views together, follows the address, and hands on what others change.

import { BASE, health, part } from "./api.js";
import { button, debounce, find, h } from "./dom.js";
import { keep, recall } from "./keep.js";
import { List } from "./list.js";
import { listen } from "./live.js";
import { findOutWhoIAm, me } from "./me.js";
import { notify } from "./notice.js";
import { own, resume } from "./outbox.js";
import { Recent, unseen } from "./recent.js";
import { go, place } from "./route.js";
import { Store } from "./store.js";
import { nameTab } from "./tabs.js";
import { askForToken, signOut, takeFromAddress } from "./token.js";
import { offerUndo, sayCreated } from "./undo.js";
import { words } from "./words.js";

// What is not needed at once, and must be there in an outage too.
const LATER = ["./conflict.js", "./doubt.js", "./importing.js", "./help.js"];

const views = new Map();
const list = new List();
const store = new Store(list);
const home = h("div", { class: "split" }, list.node, store.node);

function frame() {
  find("skip").textContent = words.skip;
  find("brand").querySelector("span").textContent = words.title;
  find("nav").setAttribute("aria-label", words.pages);
  find("nav").replaceChildren(
    h("a", { href: "./", "data-view": "list" }, words.list.title),
    h(
      "a",
      { href: "?view=changes", "data-view": "changes" },
      words.recent.short,
      " ",
      h("span", { class: "count", id: "unseen" }),
    ),
  );
  find("more").setAttribute("aria-label", words.menu.title);
  find("menu").addEventListener("toggle", drawMenu);
  drawMenu();
}

function drawMenu() {
  const shortcut = h("input", { type: "checkbox", checked: recall("shortcut", true) });
  shortcut.addEventListener("change", () => keep("shortcut", shortcut.checked));
  find("menu").replaceChildren(
    h("p", { class: "hint" }, words.menu.me(me)),
    button(words.menu.help, openHelp),
    h("a", { href: new URL("../docs", BASE).href }, words.menu.reference),
    h("a", { href: new URL("../openapi.json", BASE).href }, words.menu.document),
    h("label", { class: "check" }, shortcut, h("span", {}, words.menu.shortcut)),
    recall("token") ? button(words.token.out, signOut) : button(words.token.give, giveToken),
  );
}

async function openHelp() {
  find("menu").hidePopover();
  (await part("./help.js")).showHelp();
}

function giveToken() {
  find("menu").hidePopover();
  askForToken();
}

/** Show what the address names. */
async function follow() {
  const here = place();
  const wasHidden = !list.body.offsetHeight;
  const { view, store: id } = here;
  document.title = words.title;
  // The list finds its place by a store, as it may have other rows than before.
  history.scrollRestoration = view === "list" ? "manual" : "auto";
  for (const link of find("nav").children) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "list") return showOther(view);
  show(home);
  home.classList.toggle("open", id !== null);
  find("new").classList.toggle("primary", id === null);
  if (id === null) list.select(null);
  if (wasHidden) list.back();
  await Promise.all([list.show(here), store.open(id)]);
}

async function showOther(view) {
  if (!views.has(view)) views.set(view, await made(view));
  if (place().view !== view) return; // another one was chosen while this one was on its way
  show(views.get(view).node);
  await views.get(view).show();
}

async function made(view) {
  if (view === "changes") return new Recent();
  const { Importing } = await part("./importing.js");
  return new Importing();
}

function show(node) {
  if (find("main").firstElementChild !== node) find("main").replaceChildren(node);
}

const reread = debounce(100, () => list.show(list.wanted, true));

function readAllAgain() {
  reread();
  store.readAgain();
  const changes = views.get("changes");
  if (changes?.node.isConnected) changes.show();
}

function take(changes) {
  const isMuch = changes.length > 100; // an import: row by row it would take minutes
  if (isMuch) reread();
  for (const change of changes) {
    const isOwn = own.has(change.seq);
    const tag = change.type === "created" ? words.list.created : words.list.changed;
    if (!isMuch) list.apply(change, isOwn || String(change.store.id) === store.id ? null : tag);
    if (!isOwn && String(change.store.id) === store.id) store.changed(change);
  }
  views.get("changes")?.take(changes);
  unseen.take(changes);
}

let stream = "";

function setLive(state) {
  stream = state;
  drawLive();
}

function drawLive() {
  if (!stream) return;
  const shown = ["fine", "readonly"].includes(health.state) && stream === "live" ? "live" : "lost";
  find("live").className = `live ${shown}`;
  find("live").textContent = words.live[shown];
}

function key(event) {
  const isText = event.target.matches?.("input, textarea, select, dialog *");
  if (
    event.key !== "/" ||
    isText ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    !recall("shortcut", true)
  ) {
    return;
  }
  event.preventDefault();
  if (place().view !== "list") go({ view: "list" });
  list.field.focus();
  list.field.select();
}

health.listeners.add(drawLive);
me.listeners.add(drawMenu);
me.listeners.add(() => (find("me").textContent = me.name ?? ""));
takeFromAddress();
frame();
findOutWhoIAm();
await nameTab();
unseen.pin();
window.addEventListener("place", follow);
window.addEventListener("keydown", key);
window.addEventListener("saved", ({ detail }) => {
  const { created, store: saved, seq, tag } = detail;
  list.apply({ type: created ? "created" : "replaced", store: saved, tag }, null);
  unseen.take([{ seq }]); // the feed may be faster than the response
  if (created) sayCreated(saved);
  else offerUndo(detail);
});
window.addEventListener("unsaved", ({ detail: target }) => {
  notify(
    words.notices.unsaved(target),
    h("a", { class: "button small", href: `?store=${target}` }, words.notices.open),
  );
});
await follow();
unseen.draw();
resume();
setTimeout(() => LATER.forEach((name) => import(name).catch(() => {})), 2000);
listen({ onChanges: take, onReset: readAllAgain, onState: setLive });
