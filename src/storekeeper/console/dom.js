// Elements, and what is said to people who do not see them. Text becomes text nodes alone: there is no way to put
// markup in here, and the Content-Security-Policy refuses any other.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. `on…` properties are listeners, `undefined`, `null` and `false` are left out. */
export function h(tag, properties = {}, ...children) {
  const svg = tag === "svg" || tag === "use";
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (!svg && ["value", "checked", "indeterminate"].includes(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

export const icon = (name) => h("svg", { class: "icon", "aria-hidden": "true" }, h("use", { href: `#i-${name}` }));

export const button = (text, onclick, properties = {}) => h("button", { type: "button", onclick, ...properties }, text);

export const find = (id) => document.getElementById(id);

/** Say something to screen readers; the same text is said again when it comes again. */
export function say(text) {
  find("said").textContent = "";
  setTimeout(() => (find("said").textContent = text), 50);
}

/** Ask in a dialog; return the value of the button that closed it, "" for Escape. `lead` stands below the title. */
export function ask({ title, lead, onsubmit, onTitle, ...properties }, ...children) {
  const dialog = h("dialog", { class: "narrow", "aria-label": title, ...properties },
    h("form", { method: "dialog", novalidate: true, onsubmit },
      h("h1", { tabindex: "-1", autofocus: onTitle }, title), h("p", { class: "lead" }, lead), ...children));
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.();
      resolve(dialog.returnValue);
    }),
  );
}

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
