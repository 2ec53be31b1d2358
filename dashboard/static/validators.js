// Validators of the beacon chain: state, balances, rewards day by day, what was missed, withdrawals and deposits.
import * as api from "./api.js";
import { daysBefore, lastDay } from "./days.js";
import { add, amount, asPercent, compare, isKnown, scaled } from "./decimal.js";
import { badge, busy, el, failure, hash, name } from "./dom.js";
import { TEXTS } from "./texts.js";

const DAYS = 30, PAGE = 10, MOST_PAGES = 10, WEI = "18", MOST = 20; // the API has pages of ten rows
const GOOD = ["active_ongoing", "pending"];

const chosenOnes = (fields) => [...new Set((fields.get("validators") ?? "").split(/[\s,]+/).filter(Boolean))];

// `index/7` or `pubkey/0x…`, as the routes have it.
const pathOf = (id) => (/^\d+$/.test(id) ? `index/${id}` : `pubkey/${encodeURIComponent(id)}`);

// Wei as coins; N/A stays so.
const coins = (wei) => scaled(wei, WEI) ?? wei;

function cell(wei) {
  const exact = coins(wei), tone = isKnown(exact) && compare(exact, "0") < 0 ? "down" : "";
  return el("td", { class: `figure-cell ${tone}`, title: exact, "data-exact": wei }, amount(exact));
}

function table(label, heads, lines) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", { class: "numbers" }, el("thead", {}, el("tr", {},
      ...Object.values(heads).map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, ...lines)));
}

// The rows of the first pages, and how many there are in all.
async function rowsOf(path, fields) {
  const rows = [];
  let total = 0;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await api.get(path, { ...fields, offset: String(page * PAGE), limit: String(PAGE) });
    rows.push(...answer.data);
    total = answer.totalRows;
    if (rows.length >= total) break;
  }
  return { rows, total };
}

const share = (part) => (part === null ? TEXTS.unknown : `${asPercent(String(part)) ?? part} %`);

function sum(rows, field) {
  return rows.every((row) => isKnown(row[field])) ? add(...rows.map((row) => row[field])) : TEXTS.unknown;
}

function figures(details, rewards) {
  const potential = sum(rewards, "consensusPotentialReward");
  const wei = [["actualBalance", details.balance.actual], ["effectiveBalance", details.balance.effective],
    ["rewardSum", sum(rewards, "consensusReward")], ["executionSum", sum(rewards, "executionReward")]];
  const counts = [["missed", rewards.reduce((count, row) => count + row.attestationsMissed, 0)],
    ["blocksProposed", rewards.reduce((count, row) => count + row.proposedBlocks, 0)],
    ["penalties", rewards.filter((row) => isKnown(row.consensusReward) && compare(row.consensusReward, "0") < 0)
      .length]];
  const figure = (key, exact, text, title = text) => el("div", { class: "figure" },
    el("span", { class: "faint" }, TEXTS[key]),
    el("span", { title, "data-sum": key, "data-exact": String(exact) }, text));
  return el("div", { class: "figures" },
    ...wei.map(([key, exact]) => figure(key, exact, isKnown(exact) ? `${amount(coins(exact))} ${TEXTS.coin}` : exact,
      coins(exact))),
    ...(isKnown(potential) ? counts : []).map(([key, count]) => figure(key, count, String(count))));
}

function lifecycle({ validator, lifecycle: life, withdrawalCredentials: credentials }) {
  const pairs = [[TEXTS.publicKey, validator.pubkey], [TEXTS.activation, life.activationEpoch],
    [TEXTS.exitEpoch, life.exitEpoch], [TEXTS.withdrawableEpoch, life.withdrawableEpoch],
    [TEXTS.credentials, credentials.address ?? credentials.credential]];
  return el("dl", {}, ...pairs.filter(([, value]) => value !== null).flatMap(([label, value]) =>
    [el("dt", {}, label), el("dd", { class: "code" }, String(value))]));
}

function rewardTable(rewards, total) {
  const line = (row) => el("tr", { "data-day": row.dateStart }, el("th", { scope: "row" }, row.dateStart),
    cell(row.consensusReward), cell(row.executionReward), el("td", {}, share(row.consensusEfficiency)),
    el("td", {}, String(row.attestationsMissed)), el("td", {}, String(row.proposedBlocks)),
    cell(row.endEffectiveBalance));
  return el("div", {},
    total > rewards.length ? el("p", { class: "bad" }, TEXTS.firstDays(rewards.length, total)) : null,
    table(TEXTS.rewardsByDay, TEXTS.rewardColumns, [...rewards].reverse().map(line)));
}

function flows(title, page) {
  if (!page.data.length) return null;
  const timeOf = (row) => new Date(row.timestamp * 1000).toISOString().slice(0, 16).replace("T", " ");
  const line = (row) => el("tr", {}, el("th", { scope: "row" }, timeOf(row)), cell(row.amount),
    el("td", {}, String(row.slot)), el("td", {}, hash(row.address ?? row.withdrawalAddress ?? "")));
  return el("details", {}, el("summary", {}, `${title} (${page.totalRows})`),
    page.totalRows > page.data.length
      ? el("p", { class: "faint" }, TEXTS.newest(page.data.length, page.totalRows)) : null,
    table(title, TEXTS.flowColumns, page.data.map(line)));
}

async function card(id, since, until) {
  const path = pathOf(id), base = "/v1/beacon/validators";
  const range = { rangeType: "timestamp", rangeFrom: String(Date.parse(since) / 1000),
    rangeTo: String(Date.parse(until) / 1000 + 86_399), granularity: "day" };
  const few = { offset: "0", limit: String(PAGE) };
  const [details, { rows: rewards, total }, withdrawals, deposits] = await Promise.all([
    api.get(`${base}/details/${path}`), rowsOf(`${base}/rewards/${path}`, range),
    api.get(`${base}/withdrawals/${path}`, few), api.get(`${base}/deposits/${path}`, few)]);
  const { validator } = details;
  return el("section", { class: "card validator", "data-validator": String(validator.index) },
    el("div", { class: "row" }, el("h2", {}, TEXTS.validator(validator.index)),
      badge(TEXTS.states[validator.status] ?? validator.status, GOOD.includes(validator.status) ? "good" : "bad")),
    figures(details, rewards), lifecycle(details),
    el("details", { open: true }, el("summary", {}, `${TEXTS.rewardsByDay} (${total})`), rewardTable(rewards, total)),
    flows(TEXTS.withdrawals, withdrawals), flows(TEXTS.deposits, deposits));
}

function form(view, since, until) {
  const ids = el("input", { id: "validators", value: chosenOnes(view.fields).join(", "), spellcheck: "false",
    placeholder: TEXTS.validatorsHint, autocomplete: "off" });
  const from = el("input", { id: "from", type: "date", value: since });
  const to = el("input", { id: "to", type: "date", value: until });
  const apply = (event) => {
    event.preventDefault();
    view.fields.set("validators", ids.value.split(/[\s,]+/).filter(Boolean).join(","));
    for (const field of [from, to]) view.fields.set(field.id, field.value);
    view.go(view.fields);
  };
  return el("form", { class: "card filters", onsubmit: apply },
    ...[[TEXTS.validatorsField, ids], [TEXTS.from, from], [TEXTS.to, to]].map(([label, field]) =>
      el("label", { for: field.id }, label, field)),
    el("button", { type: "submit", class: "main" }, TEXTS.show));
}

export async function validators(page, view) {
  const until = lastDay(view.fields), since = view.fields.get("from") || daysBefore(until, DAYS - 1);
  const place = el("div", {}, busy()), ids = chosenOnes(view.fields).slice(0, MOST);
  page.replaceChildren(form(view, since, until), place);
  if (!ids.length) return place.replaceChildren(el("p", { class: "card" }, TEXTS.validatorsEmpty));
  const read = (id) => card(id, since, until).catch((error) => {
    if (error.status === 401) throw error;
    return el("section", { class: "card" }, el("h2", {}, name(id, 24)), failure(error));
  });
  try {
    place.replaceChildren(...await Promise.all(ids.map(read)));
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => validators(page, view)));
  }
}
