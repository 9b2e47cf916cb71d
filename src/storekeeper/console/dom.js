// Elements, and what is said to people who do not see them. Text only becomes text nodes: there is
// no way to put markup in here, and the Content-Security-Policy refuses any other.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. `on…` properties are listeners, `undefined`, `null` and `false` are left out.
 */
export function h(tag, properties = {}, ...children) {
  const svg = tag === "svg" || tag === "use";
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (!svg && ["value", "checked", "indeterminate"].includes(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== undefined && child !== null && child !== false),
  );
  return node;
}

export const icon = (name) =>
  h("svg", { class: "icon", "aria-hidden": "true" }, h("use", { href: `#i-${name}` }));

export const button = (text, onclick, properties = {}) =>
  h("button", { type: "button", onclick, ...properties }, text);

export const find = (id) => document.getElementById(id);

/** Say something to screen readers; the same text is said again when it comes again. */
export function say(text) {
  find("said").textContent = "";
  setTimeout(() => (find("said").textContent = text), 50);
}

/**
 * Ask in a dialog; return the value of the button that closed it, "" for Escape. `lead` stands
 * below the title.
 */
export function ask({ title, lead, onsubmit, onTitle, ...properties }, ...children) {
  const form = h(
    "form",
    { method: "dialog", novalidate: true, onsubmit },
    h("h1", { tabindex: "-1", autofocus: onTitle }, title),
    lead ? h("p", { class: "lead" }, lead) : null,
    ...children,
  );
  const dialog = h("dialog", { class: "narrow", "aria-label": title, ...properties }, form);
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    // Browsers send `close` some time after a dialog has closed: until then it would still be in
    // the page, as if it was open. So what closes a dialog removes it.
    const end = (value) => {
      dialog.remove();
      before?.focus?.();
      resolve(value);
    };
    const unlessPrevented = (value) => (event) => {
      if (event.defaultPrevented) return;
      event.preventDefault();
      end(value(event));
    };
    form.addEventListener(
      "submit",
      unlessPrevented((event) => event.submitter?.value ?? ""),
    );
    dialog.addEventListener(
      "cancel",
      unlessPrevented(() => ""),
    );
    dialog.addEventListener(DISMISSED, () => end(""));
    dialog.addEventListener("close", () => end(""));
  });
}

// What arrives while a button is held down waits until it is released: what moves or is drawn again
// between the two would take the click.
let isPressed = false;
let held = [];

/** Return a promise that ends once neither a button nor a finger is down. */
export const released = () =>
  isPressed ? new Promise((resolve) => held.push(resolve)) : Promise.resolve();

function release() {
  isPressed = false;
  for (const resolve of held) resolve();
  held = [];
}

const CLICK_DELAY = 100; // a finger's click comes some time after it is up
let releasing;
window.addEventListener(
  "pointerdown",
  () => {
    clearTimeout(releasing);
    isPressed = true;
  },
  true,
);
for (const name of ["pointerup", "pointercancel", "blur"]) {
  window.addEventListener(name, () => (releasing = setTimeout(release, CLICK_DELAY)), true);
}
window.addEventListener("pointermove", ({ buttons }) => isPressed && !buttons && release(), true);

// Keys that belong to an input method: Enter takes over what was composed, Escape leaves it, arrows
// choose among candidates. In Safari the Enter that ends a composition comes after it, with the
// code 229 and `isComposing` false.
const COMPOSING = 229;
window.addEventListener(
  "keydown",
  (event) => {
    if (event.isComposing || event.keyCode === COMPOSING) event.stopImmediatePropagation();
  },
  true,
);

const DISMISSED = "dismissed";

/** Close the dialog that a node is in, as Escape does. */
export const dismiss = (node) => node?.closest("dialog")?.dispatchEvent(new Event(DISMISSED));

/** Save a file that the page made. */
export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Call a function once the calls have paused for that many milliseconds. */
export function debounce(delay, call) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), delay);
  };
}
