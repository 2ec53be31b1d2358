// The table of holdings: sorted, searched, opened and closed; only what is open is drawn.
import { amount, compare, money } from "./decimal.js";
import { badge, button, el, logo, name } from "./dom.js";
import { labelOf } from "./addresses.js";
import { TEXTS } from "./texts.js";
import { explain } from "./why.js";

const PAGE = 200; // rows of one parent that are drawn at first
const GROWTH = 5; // times as many with each click: all are drawn anew, so many small steps would take long
const KEYS = {
  name: (node) => node.label?.toLowerCase() ?? "",
  amount: (node) => node.asset?.balance, price: (node) => node.asset?.price, value: (node) => node.value,
};

function sorted(nodes, order) {
  const key = KEYS[order.by], way = order.down ? -1 : 1;
  const text = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
  const number = (a, b) => compare(key(a), key(b));
  return [...nodes].sort((a, b) => way * (order.by === "name" ? text(a, b) : number(a, b)));
}

const matches = (node, words) => `${node.label} ${node.full ?? ""} ${node.id}`.toLowerCase().includes(words);

// The part of the tree that matches; a parent that matches keeps all below it.
function filtered(node, words) {
  if (!words || matches(node, words)) return node;
  const children = (node.children ?? []).map((each) => filtered(each, words)).filter(Boolean);
  return children.length ? { ...node, of: node, children } : null;
}

export function holdingsTable(root, many) {
  const open = new Set(), shown = new Map(), order = { by: "value", down: true };
  const body = el("tbody");
  let words = "";
  const identity = (node, above) => `${above}/${node.id}`;

  const walk = (nodes, visit, above = "") => nodes.forEach((node) => {
    if (!node.children) return;
    visit(identity(node, above));
    walk(node.children, visit, identity(node, above));
  });
  walk(root.children, (id) => open.add(id));

  function row(node, level, id) {
    const folder = Boolean(node.children), opened = words !== "" || open.has(id);
    const turn = () => {
      if (!open.delete(id)) open.add(id);
      draw();
      body.querySelector(`[data-id="${CSS.escape(id)}"]`)?.focus();
    };
    const first = folder
      ? button(opened ? "▾" : "▸", turn, { class: "turn", "aria-expanded": String(opened), "data-id": id,
        "aria-label": node.label })
      : el("span", { class: "turn" });
    const label = el("span", { class: "label" }, logo(node.picture), name(node.label),
      node.full && node.full !== node.label.toLowerCase() ? el("span", { class: "faint full" }, name(node.full)) : null,
      node.side ? badge(TEXTS[node.side], node.side) : null,
      many && node.owner ? el("span", { class: "faint" }, name(labelOf(node.owner))) : null);
    const why = button(money(node.value), () => explain(node.of ?? node), { class: "number", title: node.value,
      "data-exact": node.value, "aria-label": `${money(node.value)} ${TEXTS.why}` });
    return el("tr", { class: `level${level} ${node.kind}` },
      el("th", { scope: "row" }, el("div", { class: "first" }, first, label)),
      el("td", { class: "wide", title: node.asset?.balance ?? "" }, node.asset ? amount(node.asset.balance) : ""),
      el("td", { class: "wide", title: node.asset?.price ?? "" }, node.asset ? money(node.asset.price) : ""),
      el("td", {}, why,
        node.asset ? el("span", { class: "narrow faint" }, amount(node.asset.balance)) : null));
  }

  function* rows(nodes, level, above) {
    const most = shown.get(above) ?? PAGE;
    const all = sorted(nodes, order);
    for (const node of all.slice(0, most)) {
      const id = identity(node, above);
      yield row(node, level, id);
      if (node.children && (words || open.has(id))) yield* rows(node.children, level + 1, id);
    }
    if (all.length > most) {
      const next = Math.min(most * GROWTH, all.length);
      const more = () => { shown.set(above, next); draw(); };
      yield el("tr", {}, el("td", { colspan: "4" }, button(TEXTS.more(next - most), more, { class: "quiet" })));
    }
  }

  function draw() {
    const kept = filtered({ ...root, label: "\n", id: "\n" }, words);
    const drawn = kept ? [...rows(kept.children, 0, "")] : [];
    body.replaceChildren(...(drawn.length ? drawn
      : [el("tr", {}, el("td", { colspan: "4" }, words ? TEXTS.nothingFound : TEXTS.nothingHeld))]));
    for (const cell of heads) {
      const mine = cell.dataset.by === order.by;
      cell.setAttribute("aria-sort", mine ? (order.down ? "descending" : "ascending") : "none");
    }
  }

  const heads = Object.keys(KEYS).map((by) => {
    const sort = () => { order.down = order.by === by ? !order.down : by !== "name"; order.by = by; draw(); };
    return el("th", { scope: "col", "data-by": by, class: by === "amount" || by === "price" ? "wide" : "" },
      button(TEXTS.columns[by], sort, { class: "sort" }));
  });
  const search = el("input", { type: "search", placeholder: TEXTS.search, "aria-label": TEXTS.search,
    oninput: () => { words = search.value.trim().toLowerCase(); draw(); } });
  draw();
  return el("section", { class: "card" },
    el("div", { class: "row spread" }, el("h2", {}, TEXTS.holdings), search,
      el("span", {}, button(TEXTS.expandAll, () => { walk(root.children, (id) => open.add(id)); draw(); },
        { class: "quiet" }), button(TEXTS.collapseAll, () => { open.clear(); draw(); }, { class: "quiet" }))),
    el("table", { class: "holdings" }, el("thead", {}, el("tr", {}, ...heads)), body));
}
