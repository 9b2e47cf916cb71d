// A create whose response was lost, and whose key no longer counts: was it done? The feed is
// searched for the same content, and the person decides.

import { epochOf, request } from "./api.js";
import { ask, h } from "./dom.js";
import { moment, who } from "./format.js";
import { words } from "./words.js";

/** Return what is to become of the create: {action: "again" | "found" | "drop", store, tag}. */
export async function resolveDoubt({ payload, cursor }) {
  const found = await search(payload, cursor);
  const lead = found ? words.doubt.found(who(found), moment(found.at)) : words.doubt.nothing;
  const action = await ask(
    { title: words.doubt.title, lead, oncancel: (event) => event.preventDefault() },
    h(
      "dl",
      { class: "values" },
      found ? [h("dt", {}, words.id), h("dd", {}, String(found.store.id))] : null,
      h("dt", {}, words.name),
      h("dd", { dir: "auto", translate: "no" }, payload.name),
      h("dt", {}, words.address),
      h("dd", { dir: "auto", translate: "no" }, payload.address ?? words.none.address),
    ),
    h(
      "div",
      { class: "actions" },
      found
        ? h("button", { class: "primary", value: "found" }, words.doubt.mine(found.store.id))
        : null,
      h(
        "button",
        { class: found ? "" : "primary", value: "again" },
        found ? words.doubt.another : words.doubt.create,
      ),
      h("button", { class: "quiet", value: "drop" }, words.doubt.keepText),
    ),
  );
  return { action, store: found?.store, tag: found && `"${found.seq}.${found.epoch}"` };
}

async function search(payload, cursor) {
  let after = cursor ?? "";
  for (;;) {
    const { status, data } = await request(`changes?limit=1000&after=${encodeURIComponent(after)}`);
    if (status !== 200) return null;
    const same = data.changes.find(
      ({ type, store }) =>
        type === "created" &&
        store.name === payload.name &&
        store.address === (payload.address ?? null),
    );
    if (same) return { ...same, epoch: epochOf(data.next) };
    if (!data.changes.length) return null;
    after = data.next;
  }
}
