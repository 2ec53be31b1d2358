// What the addresses hold, what it is worth, and why.
import * as api from "./api.js";
import { addressBar, chosen } from "./addresses.js";
import { add, compare, forPixels, isKnown, money, percent, subtract } from "./decimal.js";
import { badge, busy, button, el, failure, name } from "./dom.js";
import { allocation, treeOf } from "./holdings.js";
import { daysBefore, lastDay, needsSubscription } from "./days.js";
import { live } from "./live.js";
import { TEXTS } from "./texts.js";
import { holdingsTable } from "./tree.js";
import { explain } from "./why.js";

const SHARES = 7; // bars of an allocation; the rest is one
const SPANS = [1, 7, 30];

function total(documents, field) {
  const texts = documents.map((each) => each[field]);
  return texts.every(isKnown) ? add(...texts) : TEXTS.unknown;
}

function figure(label, value) {
  return el("div", { class: "figure" }, el("span", { class: "faint" }, label),
    el("span", { title: value, "data-exact": value }, money(value)));
}

function summary(documents, tree, changes) {
  const issues = documents.flatMap((each) => each.issues);
  const whole = documents.every((each) => each.completeness === "complete");
  const node = { ...tree.root, label: TEXTS.netWorth, issues };
  const blocks = tree.root.children.flatMap((chain) => (chain.read ?? []).slice(0, 1).map((read) =>
    `${read.name} ${read.blockNumber ? TEXTS.block(read.blockNumber) : TEXTS.unknown}`));
  const fields = [["cash", "cashBalance"], ["todayIn", "dailyIncome"], ["todayOut", "dailyExpense"],
    ["openGain", "openPnl"], ["closedGain", "closedPnl"]];
  return el("section", { class: "card" },
    el("h2", { class: "faint" }, TEXTS.netWorth),
    el("div", { class: "row" },
      button(money(tree.root.value), () => explain(node), { class: "worth", id: "networth", title: tree.root.value,
        "data-exact": tree.root.value }),
      badge(whole ? TEXTS.complete : TEXTS.partial, whole ? "good" : "bad"), changes),
    el("p", { class: "faint" }, name(`${TEXTS.blocks} ${blocks.join(", ")}`, 200)),
    el("div", { class: "figures" }, ...fields.map(([text, key]) => figure(TEXTS[text], total(documents, key)))));
}

// What was gained since 00:00 UTC of a past day, deposits included.
function change(days, day, worth, label) {
  const before = days.find((each) => each.day === day);
  if (!before || !isKnown(before.value)) {
    return el("span", { class: "faint", title: TEXTS.noChange }, `${label} ${TEXTS.unknown}`);
  }
  const moved = subtract(worth, before.value), part = percent(moved, before.value);
  const sign = compare(moved, "0") < 0 ? "down" : "up";
  return el("span", { class: sign, title: `${before.day}: ${before.value}` },
    `${label} ${sign === "up" ? "+" : ""}${money(moved)}${part === null ? "" : ` (${part.replace("-", "−")} %)`}`);
}

async function fillChanges(place, view, worth) {
  const last = lastDay(view.fields);
  try {
    const answer = await api.get("/v1/performance", {
      addresses: chosen(view.fields).join(), startDate: daysBefore(last, 30), endDate: last,
    });
    place.replaceChildren(...SPANS.map((span) =>
      change(answer.days, daysBefore(last, span), worth, TEXTS.change[span])));
  } catch (error) {
    const needs = error.status === 403 ? needsSubscription(view) : null;
    place.replaceChildren(needs ?? el("span", { class: "faint" }, error.message));
  }
}

function bars(root) {
  const list = el("div", { class: "bars" });
  const draw = (by) => {
    const rows = allocation(root, by).filter((each) => compare(each.value, "0") > 0)
      .sort((a, b) => compare(b.value, a.value));
    const rest = rows.slice(SHARES);
    const drawn = [...rows.slice(0, SHARES),
      ...(rest.length ? [{ label: TEXTS.others, value: add(...rest.map((each) => each.value)) }] : [])];
    const whole = add(...rows.map((each) => each.value));
    list.replaceChildren(...drawn.map((each, index) => {
      const bar = el("span", { class: `bar-fill tone${index}` });
      const share = percent(each.value, whole) ?? "0";
      bar.style.width = `${Math.max(0.5, forPixels(share))}%`;
      return el("div", { class: "share" }, el("span", { class: "share-name" }, name(each.label, 24)),
        el("span", { class: "track" }, bar), el("span", { class: "share-part" }, `${share} %`),
        el("span", { class: "share-value", title: each.value, "data-exact": each.value }, money(each.value)));
    }));
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.by === by));
  };
  const tabs = Object.keys(TEXTS.by).map((by) =>
    button(TEXTS.by[by], () => draw(by), { class: "chip", "data-by": by }));
  draw("asset");
  return el("section", { class: "card" }, el("div", { class: "row spread" }, el("h2", {}, TEXTS.allocation),
    el("div", { class: "chips" }, ...tabs)), list);
}

function outsideSums(nodes) {
  if (!nodes.length) return null;
  const line = (node) => el("li", {},
    button(name(node.label), () => explain(node), { class: "link" }),
    el("span", { class: "faint" }, name(node.full, 60)), badge(node.reason, "bad"));
  return el("details", { class: "card", id: "outside" }, el("summary", {}, TEXTS.noSum(nodes.length)),
    el("p", { class: "faint" }, TEXTS.noSumText), el("ul", { class: "parts" }, ...nodes.slice(0, 500).map(line)));
}

// All that the page shows of documents of the API.
export function holdings(documents, changes = null) {
  const tree = treeOf(documents);
  return [summary(documents, tree, changes), bars(tree.root), holdingsTable(tree.root, documents.length > 1),
    ...[outsideSums(tree.outside)].filter(Boolean)];
}

// A button above the page once more of the addresses is indexed than was when the page was made.
function announce(page, view) {
  let first = null;
  live(chosen(view.fields).join(), view.signal, (statuses) => {
    const times = statuses.map((each) => each.transactionsLastSync).join();
    first ??= times;
    if (times === first || page.querySelector("#newer")) return;
    page.prepend(button(TEXTS.newer, view.render, { id: "newer", class: "chip" }));
  });
}

export async function portfolio(page, view) {
  const addresses = chosen(view.fields), place = el("div", {});
  page.replaceChildren(await addressBar(view), place);
  if (!addresses.length) return place.replaceChildren(el("p", { class: "card" }, TEXTS.empty));
  place.replaceChildren(busy());
  try {
    const documents = await api.get("/v1/portfolio",
      { addresses: addresses.join(), includeSources: "true", includeExplorerUrls: "true",
        includeImages: "true" });
    const changes = el("div", { class: "changes" });
    place.replaceChildren(...holdings(documents, changes));
    page.dataset.ready = "yes";
    announce(page, view);
    await fillChanges(changes, view, place.querySelector("#networth").dataset.exact);
  } catch (error) {
    place.replaceChildren(failure(error, () => portfolio(page, view)));
  }
}
