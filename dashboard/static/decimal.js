// Exact decimals as text. No amount, price or value becomes a Number: a Number has 53 bits, an amount has 256.

const SHAPE = /^(-?)(\d+)(?:\.(\d+))?$/;

// A decimal as integer and scale; null for text that is no decimal, such as "N/A".
function parse(text) {
  const match = SHAPE.exec(text ?? "");
  if (!match) return null;
  const digits = BigInt(match[2] + (match[3] ?? ""));
  return { units: match[1] ? -digits : digits, scale: (match[3] ?? "").length };
}

function show(units, scale) {
  const digits = (units < 0n ? -units : units).toString().padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  const part = scale ? digits.slice(-scale).replace(/0+$/, "") : "";
  return (units < 0n ? "-" : "") + whole + (part ? `.${part}` : "");
}

export const isKnown = (text) => parse(text) !== null;

// The exact sum of decimals; texts that are no decimals are left out.
export function add(...texts) {
  const parts = texts.map(parse).filter(Boolean);
  const scale = Math.max(0, ...parts.map((part) => part.scale));
  return show(parts.reduce((sum, part) => sum + part.units * 10n ** BigInt(scale - part.scale), 0n), scale);
}

export const negate = (text) => (parse(text) === null ? text : text.startsWith("-") ? text.slice(1) : add(`-${text}`));
export const subtract = (text, other) => add(text, negate(other));

// -1, 0 or 1; unknown is below everything.
export function compare(text, other) {
  const a = parse(text), b = parse(other);
  if (!a || !b) return (a ? 1 : 0) - (b ? 1 : 0);
  const left = a.units * 10n ** BigInt(b.scale), right = b.units * 10n ** BigInt(a.scale);
  return left < right ? -1 : left > right ? 1 : 0;
}

// Rounded half to even at a number of places.
export function round(text, places) {
  const value = parse(text);
  if (!value) return text;
  if (value.scale <= places) return show(value.units * 10n ** BigInt(places - value.scale), places);
  const unit = 10n ** BigInt(value.scale - places);
  const size = value.units < 0n ? -value.units : value.units;
  let kept = size / unit;
  const rest = size % unit;
  if (rest * 2n > unit || (rest * 2n === unit && kept % 2n === 1n)) kept += 1n;
  return show(value.units < 0n ? -kept : kept, places);
}

// The part of a whole in per cent, with two places; null if there is no whole.
export function percent(text, whole) {
  const a = parse(text), b = parse(whole);
  if (!a || !b || b.units === 0n) return null;
  const ratio = (a.units * 10n ** BigInt(b.scale) * 10n ** 8n) / (b.units * 10n ** BigInt(a.scale));
  return round(show(ratio, 6), 2);
}

// A fraction such as "0.0123" in per cent.
export const asPercent = (text) => {
  const value = parse(text);
  return value ? round(show(value.units * 100n, value.scale), 2) : null;
};

function grouped(text) {
  const [whole, part] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part === undefined ? "" : `.${part}`);
}

function fixed(text, places) {
  const [whole, part = ""] = round(text, places).split(".");
  return grouped(`${whole}.${part.padEnd(places, "0")}`);
}

// Money for reading: two places, and six significant ones below a hundredth.
export function money(text, unit = "$") {
  if (!isKnown(text)) return text;
  const sign = text.startsWith("-") ? "−" : "";
  const size = sign ? text.slice(1) : text;
  const shown = compare(size, "0") > 0 && compare(size, "0.01") < 0 ? small(size) : fixed(size, 2);
  return unit.length === 1 ? `${sign}${unit}${shown}` : `${sign}${shown} ${unit}`;
}

// An amount for reading: at most six places, more for tiny ones.
export function amount(text) {
  if (!isKnown(text)) return text;
  const sign = text.startsWith("-") ? "−" : "";
  const size = sign ? text.slice(1) : text;
  return sign + (compare(size, "0") > 0 && compare(size, "0.000001") < 0 ? small(size) : grouped(round(size, 6)));
}

// Three significant digits of a number below one.
function small(text) {
  const zeros = /^0\.(0*)/.exec(text)?.[1].length ?? 0;
  return round(text, zeros + 3);
}

// An integer of the chain as an amount; null if it or its decimals are not known.
export function scaled(raw, decimals) {
  const value = parse(raw);
  if (!value || value.scale || !/^\d{1,2}$/.test(decimals ?? "")) return null;
  return show(value.units, Number(decimals));
}

// Only for pixels and order on a chart.
export const forPixels = (text) => (isKnown(text) ? Number(text) : null);
