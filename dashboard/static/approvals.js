// What others may take, the largest value at risk first.
import * as api from "./api.js";
import { addressBar, chosen } from "./addresses.js";
import { amount, compare, money, scaled } from "./decimal.js";
import { badge, busy, el, failure, hash, name } from "./dom.js";
import { symbolOf } from "./holdings.js";
import { revocation } from "./revoke.js";
import { TEXTS } from "./texts.js";

const MOST_PAGES = 20, LIMIT = 100;

// What is read in addition to events; a chain that lacks a part answers 501, and is then asked for less.
const PARTS = ["allowance,permit2,operators", "allowance,operators", "allowance"];

// Approvals of a chain that can still be used, and as issues what the server could not read of it.
async function remaining(chain, addresses, parts = PARTS) {
  try {
    return await pages(chain, addresses, parts[0]);
  } catch (error) {
    if (error.status !== 501 || parts.length === 1) throw error;
    const less = await remaining(chain, addresses, parts.slice(1));
    return { ...less, issues: [{ reason: error.message }, ...less.issues] };
  }
}

async function pages(chain, addresses, include) {
  const found = { chain, rows: [], operators: [], issues: [], isCut: false };
  let cursor = "";
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await api.get(`/v1/approvals/${encodeURIComponent(chain.key)}`,
      { addresses, limit: LIMIT, cursor, include: page ? "allowance" : include });
    found.rows.push(...answer.items.filter((each) => each.allowance && each.allowance.amount !== "0")
      .map((each) => ({ ...each, left: each.allowance, through: TEXTS.direct })));
    found.rows.push(...(answer.permit2 ?? []).map((each) => ({ ...each, left: each, through: TEXTS.permit2 })));
    found.operators.push(...(answer.operators ?? []));
    found.issues.push(...(answer.issues ?? []));
    cursor = answer.cursor;
    if (!cursor) return found;
  }
  return { ...found, isCut: true };
}

function approvalRow(chain, row) {
  const { left, asset } = row;
  const size = left.unlimited ? badge(TEXTS.unlimited, "bad")
    : amount(scaled(left.amount, asset?.decimal) ?? left.amount);
  const token = asset ? name(symbolOf(asset), 20) : hash(row.contract);
  const facts = [[TEXTS.contract, row.contract], [TEXTS.spender, row.to], [TEXTS.owner, row.from],
    [TEXTS.exactAmount, left.amount], [TEXTS.balance, left.balance], [TEXTS.exact, left.valueAtRisk],
    [TEXTS.blockNumber, `${left.blockNumber} · ${left.blockHash}`], [TEXTS.hash, row.hash]];
  const more = el("details", {}, el("summary", {}, TEXTS.why),
    el("dl", {}, ...facts.flatMap(([label, value]) => [el("dt", {}, label), el("dd", { class: "code" }, value)])));
  return el("li", { class: "approval" },
    el("span", { class: "statement" }, row.spenderLabel ? name(row.spenderLabel) : hash(row.to), ` ${TEXTS.mayTake} `,
      size, " ", token, " ", badge(row.through), " ", el("span", { class: "faint" }, name(chain.name, 20))),
    el("span", { class: "risk", title: left.valueAtRisk, "data-exact": left.valueAtRisk }, money(left.valueAtRisk)),
    more, revocation(chain, row));
}

function operatorRow(chain, row) {
  return el("li", { class: "approval" }, el("span", { class: "statement" },
    row.spenderLabel ? name(row.spenderLabel) : hash(row.to), ` ${TEXTS.mayMove} `, name(row.held, 20), " ",
    hash(row.contract), " ", badge(row.standard), " ", el("span", { class: "faint" }, name(chain.name, 20))),
    revocation(chain, row));
}

function list(results) {
  const rows = results.flatMap((each) => each.rows.map((row) => [each.chain, row]))
    .sort(([, a], [, b]) => compare(b.left.valueAtRisk, a.left.valueAtRisk));
  const operators = results.flatMap((each) => each.operators.map((row) => [each.chain, row]));
  const issues = results.flatMap((each) => each.issues);
  const title = results.length ? TEXTS.canTake(rows.length + operators.length) : TEXTS.approvalsUnknown;
  return el("section", { class: "card" }, el("h2", {}, title),
    el("p", { class: "faint" }, TEXTS.riskText),
    results.some((each) => each.isCut) ? el("p", { class: "bad" }, TEXTS.cutShort(MOST_PAGES * LIMIT)) : null,
    ...issues.map((issue) => el("p", { class: "bad" }, name(issue.reason, 300))),
    el("ul", { class: "parts", id: "approvals" }, ...rows.map(([chain, row]) => approvalRow(chain, row)),
      ...operators.map(([chain, row]) => operatorRow(chain, row))));
}

export async function approvals(page, view) {
  const place = el("div", {}, busy());
  page.replaceChildren(await addressBar(view), place);
  if (!chosen(view.fields).length) return place.replaceChildren(el("p", { class: "card" }, TEXTS.empty));
  try {
    const chains = await api.get("/v1/chains");
    const refused = [];
    const results = await Promise.all(chains.map((chain) => remaining(chain, chosen(view.fields).join())
      .catch((error) => {
        if (error.status === 401) throw error;
        refused.push(`${chain.name}: ${error.message}`);
        return null;
      })));
    place.replaceChildren(list(results.filter(Boolean)),
      ...refused.map((text) => el("p", { class: "card faint" }, name(text, 400))));
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => approvals(page, view)));
  }
}
