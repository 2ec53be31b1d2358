// The field for addresses, with what the account has saved beside it.
import * as api from "./api.js";
import { button, el, name } from "./dom.js";
import { TEXTS } from "./texts.js";

export const chosen = (fields) => (fields.get("addresses") ?? "").split(/[\s,]+/).filter(Boolean);

// Saved names by address, and groups; none if the account may not have them.
let saved = { labels: new Map(), groups: [] };
async function book() {
  const [entries, bundles] = await Promise.all([
    api.get("/v1/addressbook").catch(() => ({ data: [] })),
    api.get("/v1/bundles").catch(() => ({ data: [] })),
  ]);
  saved = {
    labels: new Map(entries.data.map((entry) => [entry.address, entry.label])),
    groups: bundles.data.map((bundle) => [bundle.name, bundle.addresses]),
  };
}

export const labelOf = (address) => saved.labels.get(address) || `${address.slice(0, 6)}…${address.slice(-4)}`;

// The bar; it changes the address of the page when others are chosen.
export async function addressBar(view) {
  await book();
  const field = el("input", {
    id: "addresses", value: chosen(view.fields).join(", "), placeholder: TEXTS.addressHint, spellcheck: "false",
    autocomplete: "off",
  });
  const choose = (list) => {
    view.fields.set("addresses", list.join(","));
    view.go(view.fields);
  };
  const enter = (event) => {
    event.preventDefault();
    choose(field.value.split(/[\s,]+/).filter(Boolean));
  };
  const groups = [...[...saved.labels].map(([address, label]) => [label || address, [address]]), ...saved.groups];
  const current = chosen(view.fields).join();
  const chips = groups.map(([label, list]) =>
    button(name(label), () => choose(list), { class: "chip", "aria-pressed": String(list.join() === current) }));
  return el("div", { class: "bar" },
    el("form", { onsubmit: enter, class: "row" },
      el("label", { for: "addresses", class: "hidden" }, TEXTS.addresses), field,
      el("button", { type: "submit", class: "main" }, TEXTS.show)),
    chips.length ? el("div", { class: "chips" }, el("span", { class: "faint" }, TEXTS.saved), ...chips) : null);
}
