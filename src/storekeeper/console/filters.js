// How the list is sorted, and which stores of it are shown: all of it is in the address.

import { cursorOf, request } from "./api.js";
import { button, h } from "./dom.js";
import { go, place, SORTS } from "./route.js";
import { words } from "./words.js";

export class Filters {
  constructor() {
    this.sort = h(
      "select",
      {
        id: "sort",
        "aria-label": words.list.sort,
        onchange: () => go({ sort: this.sort.value, view: "list" }),
      },
      SORTS.map((sort) => h("option", { value: sort }, words.list.sorts[sort])),
    );
    const toggle = (text, turn) =>
      button(text, () => go({ ...turn(place()), view: "list" }), {
        class: "small",
        "aria-pressed": "false",
      });
    this.toggles = {
      bare: toggle(words.list.bare, ({ bare }) => ({ bare: !bare })),
      // By name, stores that are like each other stand together.
      twins: toggle(words.list.twins, ({ twins, sort }) => ({
        twins: !twins,
        sort: !twins && sort === SORTS[0] ? "name" : sort,
      })),
    };
    this.since = h("input", {
      type: "date",
      id: "since",
      onchange: () => go({ since: this.since.value, view: "list" }, { replace: true }),
    });
    this.node = h(
      "div",
      { class: "filters", role: "group", "aria-label": words.list.filters },
      this.sort,
      this.toggles.bare,
      this.toggles.twins,
      h("label", { class: "since" }, h("span", {}, words.list.since), this.since),
    );
    this.titles = { id: this.title("id", "num"), name: this.title("name", "name") };
  }

  /** The title of a column by which the list can be sorted. */
  title(name, kind) {
    const turn = () => go({ sort: place().sort === name ? `-${name}` : name, view: "list" });
    return h(
      "th",
      { scope: "col", class: kind },
      button(words[name], turn, { class: "quiet small" }),
    );
  }

  /** Show what the address says. */
  draw({ sort, bare, twins, since }) {
    this.sort.value = sort;
    for (const [name, isOn] of Object.entries({ bare, twins })) {
      this.toggles[name].setAttribute("aria-pressed", String(isOn));
    }
    if (document.activeElement !== this.since) this.since.value = since;
    this.since.parentNode.classList.toggle("on", Boolean(since));
    for (const [name, node] of Object.entries(this.titles)) {
      if (sort === name) node.setAttribute("aria-sort", "ascending");
      else if (sort === `-${name}`) node.setAttribute("aria-sort", "descending");
      else node.removeAttribute("aria-sort");
    }
  }
}

/** The query of what a place asks of the list; null if it cannot be asked. `signal` ends it. */
export async function queryOf({ q, sort, bare, twins, since }, limit, signal) {
  const query = new URLSearchParams({ limit, ...(q && { q }) });
  if (sort !== "id") query.set("sort", sort);
  if (bare) query.set("no-address", "true");
  if (twins) query.set("duplicates", "true");
  if (since) query.set("changed-after", await cursorAt(since, signal));
  return query;
}

/** The cursor of the beginning of a day: what changed since comes after it. */
async function cursorAt(day, signal) {
  const at = new Date(`${day}T00:00`);
  if (at > new Date()) return "now";
  const { tag } = await request(`stores?limit=1&at=${at.toISOString()}`, {
    method: "HEAD",
    signal,
  });
  return tag ? cursorOf(tag) : "now";
}
