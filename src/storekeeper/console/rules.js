// The contract's rules for a store, as a person types, and hints that correct nothing.

import { MAX_BODY, MAX_NAME } from "./limits.js"; // which the service makes
import { words } from "./words.js";

/** The fields of a store that a person writes. */
export const FIELDS = ["name", "address"];

/** The number of characters: code points, as the service counts them. */
export const size = (text) => [...text].length;

/** The rule that a value breaks, in words; null if it breaks none. */
export function broken(field, value) {
  if (value?.includes("\0")) return words.rules.zero;
  if (field === "address") return isLarge(value ?? "") ? words.rules.large : null;
  if (!value) return words.rules.missing;
  return size(value) > MAX_NAME ? words.rules.long(size(value) - MAX_NAME) : null;
}

/** Whether a text is too large for a request, in which a character takes up to six bytes. */
const isLarge = (text) =>
  text.length > MAX_BODY / 6 && new Blob([JSON.stringify(text)]).size > MAX_BODY - 1000;

/** What may be meant otherwise; null if nothing. */
export function hint(value) {
  if (!value) return null;
  if (value.trim() === "") return words.hints.blank;
  if (/\s$/u.test(value)) return words.hints.end;
  if (/^\s/u.test(value)) return words.hints.start;
  return / {2,}/u.test(value) ? words.hints.double : null;
}

/** How a field shows a text: it knows one kind of line end, and one line has none. */
export function asShown(field, text) {
  const lines = (text ?? "").replace(/\r\n?/g, "\n");
  return field === "name" ? lines.replaceAll("\n", "") : lines;
}

/** What a typed text means as the value of a field: an empty address is null. */
export const valueOf = (field, text) => (field === "address" && text === "" ? null : text);

/**
 * The content that the fields mean: what was not touched stays to the letter, and an empty address
 * is null.
 */
export function content(shown, base) {
  const value = (field) =>
    base && asShown(field, base[field]) === shown[field] ? base[field] : shown[field];
  return {
    name: value("name"),
    address: value("address") === "" && base?.address !== "" ? null : value("address"),
  };
}

/** What is sent: an address that is null is left out. */
export const payload = ({ name, address }) => (address === null ? { name } : { name, address });

export const equal = (one, other) =>
  one?.name === other?.name && (one?.address ?? null) === (other?.address ?? null);
