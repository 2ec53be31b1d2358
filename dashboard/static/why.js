// The why of a number, from what the API says: the parts of a sum, or block, price source and calls of one asset.
import { amount, isKnown, money } from "./decimal.js";
import { button, el, hash, name, outside } from "./dom.js";
import { TEXTS } from "./texts.js";

const dialog = document.getElementById("why");

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", {}, ...known.flatMap(([label, value]) => [el("dt", {}, label),
    el("dd", {}, typeof value === "string" ? name(value, 300) : value)]));
}

export function callTable(calls) {
  if (!calls?.length) return null;
  const lines = calls.map((call) => el("tr", {},
    el("td", {}, name(call.number)), el("td", {}, call.contract ? hash(call.contract) : ""),
    el("td", { class: "code" }, name(call.signature ?? call.method, 120),
      ...(call.arguments ?? []).map((each) => el("div", { class: "faint" }, name(each, 90)))),
    el("td", { class: "code" }, ...call.result.map((each) => el("div", {}, name(each, 90))))));
  const heads = Object.values(TEXTS.call).map((text) => el("th", { scope: "col" }, text));
  return el("details", { open: true }, el("summary", {}, `${TEXTS.calls} (${calls.length})`),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": TEXTS.calls },
      el("table", { class: "calls" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines))));
}

function ofAsset(node) {
  const { asset } = node, sources = asset.sources ?? {};
  const formula = isKnown(asset.price) ? `${asset.balance} × ${asset.price}` : null;
  return [
    facts([
      [TEXTS.exact, asset.value], [TEXTS.formula, formula], [TEXTS.exactAmount, asset.balance],
      [TEXTS.rawAmount, sources.raw], [TEXTS.decimals, asset.decimal], [TEXTS.exactPrice, asset.price],
      [TEXTS.priceSource, sources.priceSource ?? asset.priceSource], [TEXTS.priceTime, sources.priceTime],
      [TEXTS.confidence, sources.confidence], [TEXTS.detail, sources.detail], [TEXTS.reasons, node.reason],
      [TEXTS.spamScore, asset.spam && String(asset.spam.score)], [TEXTS.reasons, asset.spam?.reasons.join(", ")],
      [TEXTS.blockNumber, sources.blockNumber], [TEXTS.blockHash, sources.blockHash],
      [TEXTS.contract, asset.contract], [TEXTS.costBasis, asset.totalCostBasis], [TEXTS.openGain, asset.openPnl],
      [TEXTS.explorer, outside(asset.explorerUrl, asset.contract)],
    ]),
    callTable(sources.calls),
  ];
}

function partList(parts) {
  const line = (part) => el("li", {},
    button(el("span", {}, name(part.label)), () => explain(part), { class: "link" }),
    el("span", { class: "number", title: part.value }, part.asset ? `${amount(part.asset.balance)} · ` : "",
      money(part.value)));
  return el("details", { open: true }, el("summary", {}, `${TEXTS.parts} (${parts.length})`),
    el("ul", { class: "parts" }, ...parts.slice(0, 500).map(line)));
}

function ofSum(node) {
  const position = node.position, issues = node.issues ?? [];
  const blocks = (node.read ?? []).map((chain) => [
    TEXTS.blockNumber,
    chain.blockNumber ? `${chain.blockNumber}${chain.blocksBehind ? ` (${TEXTS.behind(chain.blocksBehind)})` : ""}`
      : TEXTS.unknown,
  ]);
  return [
    facts([[TEXTS.exact, node.value], ...blocks, [TEXTS.health, position?.healthRate],
      [TEXTS.pool, position?.poolAddress || position?.vaultAddress],
      [TEXTS.blockHash, position?.sources?.blockHash]]),
    partList(node.children),
    callTable(position?.sources?.calls),
    issues.length ? el("details", { open: true }, el("summary", {}, `${TEXTS.issues} (${issues.length})`),
      el("ul", {}, ...issues.map((issue) => el("li", {}, name(`${issue.adapter} ${issue.subject}: ${issue.reason}`,
        400))))) : null,
  ];
}

export function explain(node) {
  const title = el("h2", { id: "why-title" }, name(TEXTS.whyTitle(`${node.label} ${money(node.value)}`), 90));
  const close = button("✕", () => dialog.close(), { class: "quiet close", "aria-label": TEXTS.close });
  dialog.replaceChildren(el("div", { class: "row spread" }, title, close),
    ...(node.asset ? ofAsset(node) : ofSum(node)).filter(Boolean));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
