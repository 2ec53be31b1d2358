// Gains by year, asset and method: what is held with its cost, and each disposal with the lots that it came from.
import * as api from "./api.js";
import { addressBar, chosen } from "./addresses.js";
import { add, amount, compare, isKnown, money } from "./decimal.js";
import { busy, button, el, failure, hash, name, short } from "./dom.js";
import { csv, download } from "./download.js";
import { TEXTS } from "./texts.js";

const PAGE = 100; // disposals that are drawn at once
const COLUMNS = ["time", "kind", "symbol", "chain", "contract", "wallet", "transaction", "amount", "proceeds", "cost",
  "gain", "acquired", "acquiredIn", "rule", "reason"];
const SUMS = { openGain: "openPnl", closedGain: "closedPnl", income: "income", feesPaid: "fees",
  costBasis: "totalCostBasis", value: "value" };
const keyOf = (row) => `${row.chain}:${row.contract}`;
const symbolOf = (row) => row.symbol?.toUpperCase() || short(row.contract) || TEXTS.unnamed;
const yearOf = (row) => row.time.slice(0, 4);

// The rows of one disposal, which has a row for each lot, in the order of the API.
export function disposalsOf(gains) {
  const found = new Map();
  for (const row of gains) {
    const id = [row.time, row.kind, row.chain, row.contract, row.wallet, row.transaction].join();
    if (!found.has(id)) found.set(id, { ...row, lots: [] });
    found.get(id).lots.push(row);
  }
  return [...found.values()];
}

const sumOf = (rows, field) => add(...rows.map((row) => row[field]));

function toneOf(gain) {
  const sign = compare(gain, "0");
  return !isKnown(gain) || sign === 0 ? "faint" : sign < 0 ? "down" : "up";
}

function cell(value) {
  const tone = isKnown(value) && compare(value, "0") < 0 ? "down" : "";
  return el("td", { class: `figure-cell ${tone}`, title: value, "data-exact": value }, money(value));
}

function table(id, label, heads, lines) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", { id, class: "numbers" },
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...lines)));
}

function summary(answer) {
  const figures = Object.entries(SUMS).map(([text, key]) => el("div", { class: "figure" },
    el("span", { class: "faint" }, TEXTS[text]),
    el("span", { title: answer[key], "data-sum": key, "data-exact": answer[key] }, money(answer[key])),
    !isKnown(answer[key]) && answer.known[key] !== undefined
      ? el("span", { class: "faint" }, TEXTS.ofKnown(money(answer.known[key]))) : null));
  const reasons = Object.entries(answer.unknown).map(([reason, count]) =>
    el("li", {}, name(TEXTS.unknownParts(count, reason), 300)));
  const unexplained = answer.unexplained.map((row) => el("li", {}, `${amount(row.amount)} `, name(symbolOf(row)), " ",
    name(`(${row.chain}): ${row.reason}`, 300)));
  const issues = answer.issues.map((issue) => el("li", {}, name(`${issue.adapter} ${issue.subject}: ${issue.reason}`,
    400)));
  const parts = [[TEXTS.unknownGains, reasons], [TEXTS.unexplained, unexplained], [TEXTS.issues, issues]];
  return el("section", { class: "card" }, el("h2", {}, TEXTS.pages.gains), el("div", { class: "figures" }, ...figures),
    ...parts.filter(([, lines]) => lines.length).map(([title, lines]) => el("details", {},
      el("summary", {}, `${title} (${lines.length})`), el("ul", {}, ...lines.slice(0, 500)))));
}

function held(holdings) {
  const parts = (row) => [row.amount, isKnown(row.held) ? row.held : "0", row.openPnl, row.totalCostBasis,
    row.closedPnl];
  const rows = holdings.filter((row) => parts(row).some((each) => each !== "0"))
    .sort((a, b) => compare(b.value, a.value));
  const line = (row) => el("tr", { "data-asset": keyOf(row) },
    el("th", { scope: "row" }, name(symbolOf(row), 24), " ", el("span", { class: "faint" }, name(row.chain, 20)),
      row.reason ? el("div", { class: "faint" }, name(row.reason, 200)) : null),
    el("td", { class: "figure-cell", title: row.held }, amount(isKnown(row.held) ? row.held : row.amount)),
    ...["totalCostBasis", "value", "openPnl", "closedPnl"].map((key) => cell(row[key])));
  return el("section", { class: "card" }, el("h2", {}, TEXTS.heldAssets),
    table("held", TEXTS.heldAssets, Object.values(TEXTS.heldColumns), rows.slice(0, 500).map(line)));
}

function byYear(gains) {
  const years = [...new Set(gains.map(yearOf))].sort().reverse();
  const line = (year) => {
    const rows = gains.filter((row) => yearOf(row) === year), sold = rows.filter((row) => row.kind !== "income");
    const known = sold.filter((row) => isKnown(row.gain)), income = rows.filter((row) => row.kind === "income");
    return el("tr", { "data-year": year }, el("th", { scope: "row" }, year), cell(sumOf(known, "proceeds")),
      cell(sumOf(known, "cost")), cell(sumOf(known, "gain")), cell(sumOf(income, "proceeds")),
      el("td", { class: "figure-cell" }, String(rows.filter((row) => !isKnown(row.gain)).length)));
  };
  return el("section", { class: "card" }, el("h2", {}, TEXTS.byYear), el("p", { class: "faint" }, TEXTS.byYearText),
    table("years", TEXTS.byYear, Object.values(TEXTS.yearColumns), years.map(line)));
}

function lotTable(lots) {
  const line = (lot) => el("tr", {}, el("td", { title: lot.amount, class: "code" }, lot.amount),
    el("td", {}, lot.acquired.slice(0, 10), " ", ...lot.acquiredIn.split(" ").map((each) => hash(each))),
    cell(lot.proceeds), cell(lot.cost), cell(lot.gain),
    el("td", { class: "note" }, name([lot.rule, lot.reason].filter(Boolean).join(": "), 200)));
  return table("", TEXTS.lots, Object.values(TEXTS.lotColumns), lots.map(line));
}

function disposal(each) {
  const whole = each.lots.every((lot) => isKnown(lot.gain));
  const gain = whole ? sumOf(each.lots, "gain") : TEXTS.unknown;
  const details = () => el("div", { class: "details" },
    el("dl", {}, ...[[TEXTS.hash, each.transaction], [TEXTS.contract, each.contract], [TEXTS.owner, each.wallet]]
      .filter(([, value]) => value)
      .flatMap(([label, value]) => [el("dt", {}, label), el("dd", { class: "code" }, value)])),
    lotTable(each.lots));
  const box = el("details", { class: "record disposal", "data-transaction": each.transaction },
    el("summary", {}, el("time", { class: "faint", datetime: each.time }, each.time.slice(0, 16).replace("T", " ")),
      el("span", { class: "statement" }, TEXTS.gainKinds[each.kind] ?? each.kind, " ",
        el("b", {}, amount(sumOf(each.lots, "amount"))), " ", name(symbolOf(each), 24), " ",
        el("span", { class: "faint" }, name(each.chain, 20))),
      el("span", { class: `gain ${toneOf(gain)}`, title: gain, "data-exact": gain }, money(gain))));
  box.addEventListener("toggle", () => box.childElementCount === 1 && box.append(details()));
  return box;
}

// The disposals of a year and of assets whose name has some words, newest first.
function disposals(gains, files) {
  const list = el("div", { id: "disposals" }), count = el("p", { class: "faint", role: "status" });
  const year = el("select", { id: "year" }, el("option", { value: "" }, TEXTS.allYears),
    ...[...new Set(gains.map(yearOf))].sort().reverse().map((each) => el("option", { value: each }, each)));
  const kind = el("select", { id: "kind" }, el("option", { value: "" }, TEXTS.allKinds),
    ...[...new Set(gains.map((row) => row.kind))].sort().map((each) =>
      el("option", { value: each }, TEXTS.gainKinds[each] ?? each)));
  const asset = el("input", { id: "asset", type: "search", placeholder: TEXTS.assetHint });
  let most = PAGE;
  const chosenRows = () => {
    const words = asset.value.trim().toLowerCase();
    return gains.filter((row) => (!year.value || yearOf(row) === year.value)
      && (!kind.value || row.kind === kind.value)
      && `${row.symbol} ${row.contract} ${row.chain}`.toLowerCase().includes(words));
  };
  const draw = () => {
    const all = disposalsOf(chosenRows()).reverse();
    count.textContent = TEXTS.disposalCount(all.length);
    const more = () => { most += PAGE; draw(); };
    list.replaceChildren(...all.slice(0, most).map(disposal),
      ...(all.length > most ? [button(TEXTS.more(all.length - most), more, { class: "quiet" })] : []));
  };
  const again = () => { most = PAGE; draw(); };
  year.addEventListener("change", again);
  kind.addEventListener("change", again);
  asset.addEventListener("input", again);
  draw();
  return el("section", { class: "card" },
    el("div", { class: "row spread" }, el("h2", {}, TEXTS.disposals), files(chosenRows)),
    el("div", { class: "filters plain" }, el("label", { for: "year" }, TEXTS.year, year),
      el("label", { for: "kind" }, TEXTS.kind, kind),
      el("label", { for: "asset" }, TEXTS.asset, asset)), count, list);
}

function methodForm(view) {
  const method = el("select", { id: "method" }, ...Object.entries(TEXTS.methods).map(([key, label]) =>
    el("option", { value: key, selected: (view.fields.get("method") ?? "fifo") === key }, label)));
  const pools = () => ["uk", "ca"].includes(method.value);
  const wallets = el("input", { id: "perWallet", type: "checkbox", checked: view.fields.get("perWallet") === "true" });
  wallets.disabled = pools();
  method.addEventListener("change", () => { wallets.disabled = pools(); });
  const apply = (event) => {
    event.preventDefault();
    view.fields.set("method", method.value);
    view.fields.set("perWallet", String(wallets.checked && !pools()));
    view.go(view.fields);
  };
  return el("form", { class: "card filters", onsubmit: apply }, el("label", { for: "method" }, TEXTS.method, method),
    el("label", { for: "perWallet" }, TEXTS.perWallet, wallets),
    el("button", { type: "submit", class: "main" }, TEXTS.apply));
}

export async function gains(page, view) {
  page.replaceChildren(await addressBar(view));
  if (!chosen(view.fields).length) return page.append(el("p", { class: "card" }, TEXTS.empty));
  const method = view.fields.get("method") ?? "fifo", perWallet = view.fields.get("perWallet") ?? "false";
  const place = el("div", {}, busy());
  page.append(methodForm(view), place);
  try {
    const answer = await api.get("/v1/gains", { addresses: chosen(view.fields).join(), method, perWallet });
    const files = (rows) => el("span", {},
      button(TEXTS.downloadCsv, () => download(`gains-${method}.csv`, "text/csv", csv(COLUMNS, rows())),
        { class: "quiet", id: "csv" }),
      button(TEXTS.downloadJson, () => download(`gains-${method}.json`, "application/json", JSON.stringify(answer)),
        { class: "quiet" }));
    place.replaceChildren(summary(answer), held(answer.holdings), byYear(answer.gains), disposals(answer.gains, files));
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => gains(page, view)));
  }
}
