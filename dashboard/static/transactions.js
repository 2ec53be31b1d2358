// What the addresses did, as statements; each opens its movements and fee.
import * as api from "./api.js";
import { addressBar, chosen } from "./addresses.js";
import { amount, compare, isKnown, money } from "./decimal.js";
import { badge, busy, button, el, failure, hash, name, outside } from "./dom.js";
import { symbolOf } from "./holdings.js";
import { TEXTS } from "./texts.js";

const PAGE = 50, MOST_ASSETS = 3;
const FILTERS = ["txTypes", "initialSearchText", "startDate", "endDate", "hideSpam", "hideDust"];

// "1.2 ETH and 3 DAI", as elements.
function assetList(assets) {
  const shown = assets.slice(0, MOST_ASSETS).flatMap((asset, index) => [index ? TEXTS.and : "",
    el("b", { title: asset.balance }, amount(asset.balance)), " ", name(symbolOf(asset), 16)]);
  if (assets.length > MOST_ASSETS) shown.push(`${TEXTS.and}${TEXTS.moreAssets(assets.length - MOST_ASSETS)}`);
  return shown;
}

function statement(record) {
  const [verb, between] = TEXTS.statements[record.type] ?? [record.type, TEXTS.and];
  const sent = assetList(record.assetsOut), got = assetList(record.assetsIn);
  const known = record.protocol.key && record.protocol.key !== "unknown" && record.protocol.key !== "wallet";
  const joint = sent.length && got.length ? ` ${between || TEXTS.and.trim()} ` : " ";
  return el("span", { class: "statement" }, verb, " ", ...sent, sent.length ? joint : "", ...got,
    ...(known ? [` ${TEXTS.on} `, name(record.protocol.name, 30)] : []));
}

const timeOf = (record) => new Date(Number(record.timestamp) * 1000).toISOString().replace("T", " ").slice(0, 16);

function movements(record) {
  const heads = Object.values(TEXTS.movement).map((text) => el("th", { scope: "col" }, text));
  const line = (asset, incoming) => el("tr", {}, el("td", {}, incoming ? TEXTS.in : TEXTS.out),
    el("td", {}, name(symbolOf(asset))), el("td", { class: "code" }, asset.balance),
    el("td", { title: asset.value }, money(asset.value)), el("td", {}, hash(incoming ? asset.from : asset.to)));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": TEXTS.movement.amount },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)),
      el("tbody", {}, ...record.assetsOut.map((each) => line(each, false)),
        ...record.assetsIn.map((each) => line(each, true)))));
}

function details(record) {
  const fee = record.nativeAssetFees;
  const pairs = [[TEXTS.hash, outside(record.explorerUrl, record.hash) ?? name(record.hash, 100)],
    [TEXTS.blockNumber, `${record.blockNumber} · ${record.chain.name}`], [TEXTS.sender, record.from],
    [TEXTS.receiver, record.to], [TEXTS.called, name(record.functionName ?? "", 80)],
    [TEXTS.fee, `${record.fees} ${fee ? name(symbolOf(fee), 12).textContent : ""} (${money(record.feesFiat)})`],
    [TEXTS.gain, record.closedPnl]];
  return el("div", { class: "details" },
    el("dl", {}, ...pairs.flatMap(([label, value]) => [el("dt", {}, label), el("dd", { class: "code" }, value)])),
    movements(record),
    record.flags?.length ? el("ul", {}, ...record.flags.map((flag) => el("li", {}, badge(flag.kind, "bad"), " ",
      name(flag.reason, 300)))) : null);
}

function line(record) {
  const gain = isKnown(record.closedPnl) && compare(record.closedPnl, "0") !== 0;
  const box = el("details", { class: "record", "data-hash": record.hash }, el("summary", {},
    el("time", { class: "faint", datetime: timeOf(record) }, timeOf(record)), statement(record),
    gain ? el("span", { class: compare(record.closedPnl, "0") < 0 ? "down" : "up", title: record.closedPnl },
      money(record.closedPnl)) : null,
    record.flags?.length ? badge(record.flags[0].kind, "bad") : null));
  box.addEventListener("toggle", () => box.childElementCount === 1 && box.append(details(record)));
  return box;
}

function filterForm(view) {
  const { fields } = view;
  const types = el("select", { id: "txTypes" }, el("option", { value: "" }, TEXTS.allTypes),
    ...Object.keys(TEXTS.statements).map((type) =>
      el("option", { value: type, selected: fields.get("txTypes") === type }, type.toLowerCase())));
  const text = el("input", { id: "initialSearchText", value: fields.get("initialSearchText") ?? "" });
  const since = el("input", { id: "startDate", type: "date", value: fields.get("startDate") ?? "" });
  const until = el("input", { id: "endDate", type: "date", value: fields.get("endDate") ?? "" });
  const spam = el("input", { id: "hideSpam", type: "checkbox", checked: fields.get("hideSpam") !== "false" });
  const dust = el("input", { id: "hideDust", type: "checkbox", checked: fields.get("hideDust") === "true" });
  const labelled = [[TEXTS.type, types], [TEXTS.text, text], [TEXTS.from, since], [TEXTS.to, until],
    [TEXTS.hideSpam, spam], [TEXTS.hideDust, dust]];
  const apply = (event) => {
    event.preventDefault();
    for (const [, field] of labelled) {
      const value = field.type === "checkbox" ? String(field.checked) : field.value.trim();
      if (value) fields.set(field.id, value);
      else fields.delete(field.id);
    }
    view.go(fields);
  };
  return el("form", { class: "card filters", onsubmit: apply },
    ...labelled.map(([label, field]) => el("label", { for: field.id }, label, field)),
    el("button", { type: "submit", class: "main" }, TEXTS.apply));
}

function endless(view) {
  const list = el("div", { class: "records" }), foot = el("div", { class: "foot" });
  const chosenFilters = Object.fromEntries(FILTERS.map((key) => [key, view.fields.get(key)]));
  if (chosenFilters.hideSpam !== "false") chosenFilters.hideSpam = "true";
  let offset = 0, waiting = false;
  const watch = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && load());
  async function load() {
    if (waiting) return;
    waiting = true;
    foot.replaceChildren(busy());
    try {
      const { transactions } = await api.get("/v1/transactions", { ...chosenFilters, limit: PAGE,
        offset: String(offset), addresses: chosen(view.fields).join(), includeExplorerUrls: "true" });
      offset += transactions.length;
      list.append(...transactions.map(line));
      const ended = transactions.length < PAGE;
      foot.replaceChildren(ended ? el("p", { class: "faint", id: "end" }, TEXTS.end(offset))
        : button(TEXTS.loadMore, load));
      watch.unobserve(foot);
      if (!ended) watch.observe(foot); // again: it reports at once if the foot is still in sight
    } catch (error) {
      watch.disconnect();
      foot.replaceChildren(failure(error, load));
    }
    waiting = false;
  }
  load();
  return el("section", { class: "card" }, list, foot);
}

export async function transactions(page, view) {
  page.replaceChildren(await addressBar(view));
  if (!chosen(view.fields).length) return page.append(el("p", { class: "card" }, TEXTS.empty));
  page.append(filterForm(view), endless(view));
}
