// How times, people, differences and found words look; numbers and times by the browser's locale,
// words by the page's.

import { tokenMark } from "./api.js";
import { h } from "./dom.js";
import { IGNORED, PLAIN_SIGNS, SPELLINGS } from "./folding.js";
import { FIELDS } from "./rules.js";
import { words } from "./words.js";

const MAX_SHOWN = 300;
const BLANKS = /[\s\x1c-\x1f\x85]+/gu;
const TRIMMED = `(?:(?![${PLAIN_SIGNS}])\\p{P})+`;
const ENDS = new RegExp(`^${TRIMMED}|${TRIMMED}$`, "gu");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const thisYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long" });
const otherYear = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "long",
  year: "numeric",
});
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const days = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });

/** A moment as people would say it today. */
export function moment(at) {
  const [then, now] = [new Date(at), new Date()];
  const ago = Math.round(
    (new Date(then).setHours(0, 0, 0, 0) - new Date(now).setHours(0, 0, 0, 0)) / 86_400_000,
  );
  if (ago >= -1) return `${days.format(ago, "day")} ${clock.format(then)}`;
  const date = then.getFullYear() === now.getFullYear() ? thisYear : otherYear;
  return `${date.format(then)}, ${clock.format(then)}`;
}

export const time = (at) =>
  h("time", { datetime: at, title: whole.format(new Date(at)) }, moment(at));

/** The day of a moment, and its time of the day. */
export function day(at) {
  const text = moment(at);
  return text.slice(0, text.length - clock.format(new Date(at)).length).replace(/[ ,]+$/, "");
}

export const clockTime = (at) =>
  h("time", { datetime: at, title: whole.format(new Date(at)) }, clock.format(new Date(at)));

/**
 * Who made a change: the user whom a proxy named, and the token. Without a token of its own
 * the page is not told any name.
 */
export function who({ by, user }) {
  if (user && by) return words.userWith(user, by);
  return user ?? by ?? (tokenMark() ? words.withoutToken : words.someone);
}

export const cut = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

/** A value as text, cut where it is very long. */
export function shown(value, none = words.none.address) {
  if (value === null || value === "") return h("i", { class: "none" }, none);
  return h("bdi", { translate: "no" }, cut(value, MAX_SHOWN));
}

/** What a change changed, field by field: old struck through, new on tint. */
export function difference(before, after) {
  return FIELDS.filter(
    (field) => before?.[field] !== after[field] && !(before === null && after[field] === null),
  ).map((field) =>
    h(
      "div",
      { class: "diff" },
      h("span", { class: "label" }, words[field]),
      h(
        "span",
        {},
        before ? [h("del", {}, shown(before[field])), " "] : null,
        h("ins", {}, shown(after[field])),
      ),
    ),
  );
}

/** Fold a character as the search does: case, marks, spellings that people type. */
function foldedLetter(letter) {
  if (letter < "\x80" && letter !== "`") return letter.toLowerCase();
  const plain = letter
    .replace(/[´\u1ffd]/u, "'")
    .normalize("NFKD")
    .replace(IGNORED, "");
  const caseless = plain.toLowerCase().toUpperCase().toLowerCase(); // in two steps from ẞ to ss
  return [...caseless].map((each) => SPELLINGS[each] ?? each).join("");
}

/** Fold a text as the search does. */
export const fold = (text) => [...text].map(foldedLetter).join("").replace(BLANKS, " ").trim();

/** Return the folded words of a search, without the punctuation at their ends. */
export const wordsOf = (text) => fold(text).split(" ").map(trimmed).filter(Boolean);

const trimmed = (word) => (/^"+$/.test(word) ? '"' : word.replace(ENDS, ""));

/**
 * Return the pieces of a text, with a `mark` around each place where one of the folded words is
 * found.
 */
export function marked(text, needles) {
  if (!needles.length) return [text];
  const [places, hay] = [[], []];
  let at = 0;
  for (const letter of text) {
    const parts = foldedLetter(letter);
    // An accent belongs to its letter.
    if (!parts && places.length) places.at(-1)[1] = at + letter.length;
    for (const part of parts) {
      hay.push(part);
      for (let unit = 0; unit < part.length; unit++) places.push([at, at + letter.length]);
    }
    at += letter.length;
  }
  const joined = hay.join("");
  const hits = needles.flatMap((needle) => {
    const found = [];
    for (
      let from = joined.indexOf(needle);
      from >= 0;
      from = joined.indexOf(needle, from + needle.length)
    ) {
      found.push([places[from][0], places[from + needle.length - 1][1]]);
    }
    return found;
  });
  return pieces(
    text,
    hits.sort((one, other) => one[0] - other[0]),
  );
}

function pieces(text, hits) {
  const parts = [];
  let end = 0;
  for (const [from, to] of hits) {
    if (from < end) continue;
    parts.push(text.slice(end, from), h("mark", {}, text.slice(from, to)));
    end = to;
  }
  return [...parts, text.slice(end)];
}
