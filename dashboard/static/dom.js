// Elements made of text only: nothing that a chain says is ever read as HTML.
import { TEXTS } from "./texts.js";

const MAX_NAME = 40;
// Marks that turn the direction of text, and characters of no width: a name with them looks like another name.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// A name that somebody else chose: isolated, without invisible characters, and cut.
export function name(text, most = MAX_NAME) {
  const whole = String(text ?? "").slice(0, 10 * most).replace(INVISIBLE, "\u{FFFD}");
  const shown = [...whole];
  return el("bdi", { title: whole }, shown.length > most ? `${shown.slice(0, most - 1).join("")}…` : whole);
}

export const short = (hash) => (hash && hash.length > 14 ? `${hash.slice(0, 8)}…${hash.slice(-4)}` : (hash ?? ""));

export const hash = (text) => el("span", { class: "hash", title: text }, short(text));

// A link to an explorer: only https, in a page of its own that does not learn where it was opened.
export function outside(url, label) {
  if (!/^https:\/\//.test(url ?? "")) return null;
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, label);
}

export const button = (label, action, more = {}) => el("button", { type: "button", onclick: action, ...more }, label);

export const failure = (error, again) =>
  el("div", { class: "notice bad", role: "alert" }, el("p", {}, error.message), again && button(TEXTS.again, again));

export const busy = () => el("p", { class: "busy", role: "status" }, TEXTS.reading);

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, text);
}

// A picture of an asset, a protocol or a chain. The page loads nothing from other hosts: only drawn ones are shown.
export const logo = (url) =>
  url?.startsWith("data:") ? el("img", { class: "logo", src: url, alt: "", width: "16", height: "16" }) : null;
