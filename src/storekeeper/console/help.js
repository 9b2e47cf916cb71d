// A short help for the page that is open, then for the others.

import { ask, h } from "./dom.js";
import { place } from "./route.js";
import { words } from "./words.js";

const PAGES = ["list", "store", "changes", "import"];

/** Show the help; the page that is open comes first. */
export async function showHelp() {
  const { view, store } = place();
  const here = view === "list" && store !== null ? "store" : view;
  const pages = [here, ...PAGES.filter((page) => page !== here)];
  await ask(
    { title: words.help.title, onTitle: true, class: "narrow help" },
    pages.map((page) =>
      h(
        "section",
        {},
        h("h2", {}, words.help.pages[page]),
        h(
          "ul",
          {},
          words.help[page].map((text) => h("li", {}, text)),
        ),
      ),
    ),
    h(
      "div",
      { class: "actions end" },
      h("button", { class: "primary", value: "close" }, words.close),
    ),
  );
}
