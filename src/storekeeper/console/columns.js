// What the columns of a sheet mean: a guess by their names, which the person corrects.

const NAME = [/^name$/i, /^(store|shop|branch|location)[ _-]?name$/i, /name|store|shop|filiale|standort|nom|nombre/i];
const ADDRESS = [/^(address|adresse|anschrift|dirección|indirizzo)$/i, /^(full|store)[ _-]?address$/i];
const STREET = /street|address|strasse|straße|rue|calle|line ?1/i;
const CITY = /city|town|ort\b|stadt|ville|ciudad/i;
const POSTCODE = /post ?code|postal|zip|plz/i;
const KEY = /^(?!.*(post|zip|plz|phone|\btel|fax|mobil)).*(number|\bno\b|nr\b|num|code|key|\bref\b|\bsku\b)/i;
const KNOWN = /^(id|version)$/i;

const first = (columns, patterns) => patterns.map((one) => columns.find((name) => one.test(name))).find(Boolean);

/** Return the sheet: its columns, and which of them are what, as named below titles. `isEmpty`: there is no store yet. */
export function guess(rows, isEmpty, header = hasHeader(below(rows))) {
  const columns = header ? below(rows).map((name) => name.trim()) : rows[0].map((_, at) => String(at + 1));
  const named = columns.filter(Boolean);
  const sheet = { rows, header, isEmpty, columns: named };
  if (!header) return { ...sheet, name: "1", address: named[1] ?? "", match: isEmpty ? "" : "1" };
  const id = named.find((name) => /^id$/i.test(name));
  const key = named.find((name) => KEY.test(name));
  const name = first(named.filter((one) => one !== key), NAME) ?? "";
  return { ...sheet, name, address: address(named.filter((one) => one !== name)), match: isEmpty ? (key ?? "") : (id ?? key ?? name) };
}

const below = (rows) => rows.find((row) => row.filter(Boolean).length > 1) ?? rows[0];
const hasHeader = (row) =>
  row.some((cell) => [...NAME, ...ADDRESS, KNOWN].some((one) => one.test(cell.trim()))) && !row.some((cell) => /\d{3}/.test(cell));

/** One column, or a template of several. */
function address(columns) {
  const whole = first(columns, ADDRESS);
  const [street, city, postcode] = [STREET, CITY, POSTCODE].map((one) => columns.find((name) => one.test(name)));
  if (whole && !city) return whole;
  const place = columns.filter((name) => name === city || name === postcode).map((name) => `{${name}}`).join(" ");
  const parts = [whole ?? street].filter(Boolean).map((name) => `{${name}}`);
  const template = [...parts, place].filter(Boolean).join(", ");
  return template.lastIndexOf("{") > 0 ? template : template.slice(1, -1);
}

export const several = (source) => source.includes("{");

/** Whether a column may tell which store a row means: the service refuses these two. */
export const canMatch = (name) => !/^(address|version)$/i.test(name);

/** The columns that mean nothing. */
export const unused = ({ columns, name, address: from, match }) =>
  columns.filter((one) => ![name, from, match].includes(one) && !from.includes(`{${one}}`) && !KNOWN.test(one));

/** The parameters of an import. */
export function query({ columns, header, name, address: from, match, isEmpty }) {
  const known = (field) => columns.some((one) => one.toLowerCase() === field);
  const map = [];
  if (name && !(known("name") && name.toLowerCase() === "name")) map.push(`name=${name}`);
  if (from && !(known("address") && from.toLowerCase() === "address")) map.push(`address=${from}`);
  const matched = match && match === name ? "name" : match;
  return { map, header: header ? "" : "none", ...(matched ? { match: matched } : isEmpty ? {} : { add: "true" }) };
}
