// Positions in protocols: health factors, debts, rewards that can be claimed, and when something unlocks.
import * as api from "./api.js";
import { addressBar, chosen, labelOf } from "./addresses.js";
import { add, amount, compare, isKnown, money } from "./decimal.js";
import { badge, busy, button, el, failure, hash, name } from "./dom.js";
import { leaves } from "./holdings.js";
import { TEXTS } from "./texts.js";
import { explain } from "./why.js";

const DAY_MS = 86_400_000, MOST = 500;
const RISKY = "1.1"; // a health factor below this is shown as bad

// Every position of the documents; loose assets of a protocol count as one.
function positionsOf(documents) {
  const found = [];
  for (const { address: owner, assetByProtocols } of documents) {
    for (const protocol of Object.values(assetByProtocols)) {
      for (const chain of Object.values(protocol.chains)) {
        for (const group of Object.values(chain.protocolPositions)) {
          const put = (lists, label, position, value) => {
            const assets = leaves(lists, owner);
            if (assets.length) found.push({ owner, protocol, chain, label, position, value, children: assets });
          };
          if (protocol.key !== "wallet") put({ assets: group.assets }, group.name, null, null);
          for (const each of group.protocolPositions) put(each, `${group.name} · ${each.name}`, each, each.value);
        }
      }
    }
  }
  return found.map((each) => ({ ...each, value: each.value ?? add(...each.children.map((leaf) => leaf.value)) }));
}

const healthOf = (each) => each.position?.healthRate;

function byRisk(a, b) {
  const known = (each) => isKnown(healthOf(each));
  if (known(a) !== known(b)) return known(a) ? -1 : 1;
  return (known(a) ? compare(healthOf(a), healthOf(b)) : 0) || compare(b.value, a.value);
}

const sumOfSide = (all, side) =>
  add(...all.flatMap((each) => each.children.filter((leaf) => leaf.side === side).map((leaf) => leaf.asset.value)));

function summary(all) {
  const healths = all.map(healthOf).filter(isKnown).sort(compare);
  const sums = [["inPositions", add(...all.map((each) => each.value))], ["borrowedSum", sumOfSide(all, "borrowed")],
    ["claimable", sumOfSide(all, "reward")]];
  const figure = (key, exact, text, tone = "") => el("div", { class: "figure" },
    el("span", { class: "faint" }, TEXTS[key]),
    el("span", { title: exact, class: tone, "data-sum": key, "data-exact": exact }, text));
  return el("section", { class: "card" }, el("h2", {}, TEXTS.pages.positions),
    el("p", { class: "faint" }, all.length ? TEXTS.positionsText : TEXTS.noPositions),
    el("div", { class: "figures" }, ...sums.map(([key, exact]) => figure(key, exact, money(exact))),
      healths.length ? figure("lowestHealth", healths[0], amount(healths[0]), toneOf(healths[0])) : null));
}

const toneOf = (health) => (isKnown(health) && compare(health, RISKY) < 0 ? "bad" : "good");

function health(rate) {
  if (rate === undefined) return null;
  return el("span", { class: toneOf(rate), title: `${rate} ${TEXTS.healthText}`, "data-health": rate },
    `${TEXTS.health} ${amount(rate)}`);
}

// A day, and how far away it is; `0` means that nothing is locked.
function unlock(time) {
  if (!time || time === "0") return null;
  const at = new Date(Number(time) * 1000), day = Number.isNaN(at.getTime()) ? TEXTS.unlockUnknown
    : at.toISOString().slice(0, 10);
  const days = Math.ceil((at.getTime() - Date.now()) / DAY_MS);
  const far = Number.isNaN(days) ? "" : days > 0 ? TEXTS.locked(days) : TEXTS.unlocked;
  return el("span", { "data-unlock": time }, `${TEXTS.unlocks} ${day} `, el("span", { class: "faint" }, far));
}

function part(leaf) {
  const { asset } = leaf;
  const why = button(money(leaf.value), () => explain({ ...leaf, reason: undefined }), { class: "number",
    title: leaf.value, "data-exact": leaf.value, "aria-label": `${money(leaf.value)} ${TEXTS.why}` });
  return el("tr", {}, el("th", { scope: "row" }, name(leaf.label, 24), " ",
    leaf.side ? badge(TEXTS[leaf.side], leaf.side) : null),
  el("td", { class: "figure-cell", title: asset.balance }, amount(asset.balance)), el("td", {}, why));
}

function grid(label, heads, lines) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", { class: "numbers" }, el("thead", {}, el("tr", {},
      ...Object.values(heads).map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, ...lines)));
}

function earned(rows) {
  if (!rows?.length) return null;
  const line = (row) => el("tr", {}, el("th", { scope: "row" }, name(row.epoch)),
    el("td", { title: row.amount }, amount(row.amount)), el("td", {}, name(row.time)),
    el("td", {}, name(row.commission)));
  return el("details", {}, el("summary", {}, `${TEXTS.earned} (${rows.length})`),
    grid(TEXTS.earned, TEXTS.earnedColumns, rows.map(line)));
}

function card(each, many) {
  const title = `${each.protocol.name} · ${each.label}`;
  const node = { ...each, label: title, kind: "position" };
  return el("section", { class: "card position" },
    el("div", { class: "row spread" }, el("h2", {}, name(title, 80)),
      button(money(each.value), () => explain(node), { class: "number", title: each.value, "data-exact": each.value,
        "data-position": title, "aria-label": `${money(each.value)} ${TEXTS.why}` })),
    el("div", { class: "row faint" }, name(each.chain.name, 30), many ? name(labelOf(each.owner)) : null,
      health(healthOf(each)), unlock(each.position?.unlockAt),
      each.position?.poolAddress ? hash(each.position.poolAddress) : null),
    grid(title.slice(0, 80), TEXTS.partColumns, each.children.slice(0, MOST).map(part)), earned(each.position?.earned));
}

export async function positions(page, view) {
  const addresses = chosen(view.fields), place = el("div", {}, busy());
  page.replaceChildren(await addressBar(view), place);
  if (!addresses.length) return place.replaceChildren(el("p", { class: "card" }, TEXTS.empty));
  try {
    const documents = await api.get("/v1/portfolio", { addresses: addresses.join(), includeSources: "true" });
    const all = positionsOf(documents).sort(byRisk);
    const issues = documents.flatMap((each) => each.issues);
    place.replaceChildren(summary(all), ...all.slice(0, MOST).map((each) => card(each, documents.length > 1)),
      ...(issues.length ? [el("details", { class: "card" }, el("summary", {}, `${TEXTS.issues} (${issues.length})`),
        el("ul", {}, ...issues.map((issue) =>
          el("li", {}, name(`${issue.adapter} ${issue.subject}: ${issue.reason}`, 400)))))] : []));
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => positions(page, view)));
  }
}
