// The first page: addresses and an endpoint, what the endpoint can do, the portfolio, and the chain for the settings.
import * as api from "./api.js";
import { chosen } from "./addresses.js";
import { badge, busy, button, el, failure, name } from "./dom.js";
import { holdings } from "./portfolio.js";
import { TEXTS } from "./texts.js";

const T = TEXTS.start;
const PAUSE_MS = 500; // after the last key, before the endpoint is asked
const LOOK_MS = 500, LOOKS = 360; // at the server that starts again

// A link to this page for whoever may add chains, else nothing.
export async function addChain() {
  const { allowed } = await api.get("/dashboard/start").catch(() => ({}));
  return allowed ? el("a", { href: "#/start", id: "add-chain" }, T.addChain) : null;
}

const pairs = (rows) => el("dl", {}, ...rows.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));

const lineText = (key, value) => {
  if (key === "oldestState" && typeof value === "number") return value > 1 ? T.stateFrom(value) : T.archive;
  if (key === "maxBatch") return value === null ? T.noLimit : String(value);
  if (typeof value === "boolean") return value ? T.yes : T.no;
  return String(value ?? TEXTS.unknown);
};

function accountLine(account) {
  const found = account.problem || account.address;
  return el("li", {}, name(account.text, 70),
    badge(account.problem ? T.unfit : T.fit, account.problem ? "bad" : "good"),
    account.problem || account.address !== account.text ? name(found, 400) : null,
    ...account.notes.map((note) => el("span", { class: "faint" }, name(note, 300))));
}

function reportCard(report) {
  const chain = report.chain;
  const rows = chain ? [[T.chain, name(`${chain.name} (${chain.key})`)], [T.kind, name(chain.kind)]] : [];
  const keys = new Set([...Object.keys(T.lines).filter((key) => key in report.row), ...Object.keys(report.row)]);
  rows.push(...[...keys].map((key) => [T.lines[key] ?? key, name(lineText(key, report.row[key]), 100)]));
  if (report.lacks.length) rows.push([T.lacks, name(report.lacks.join(", "), 400)]);
  return el("section", { class: "card", id: "report", "data-chain": chain?.key ?? "" },
    el("div", { class: "row" }, el("h2", {}, name(report.endpoint, 100)),
      badge(report.ok ? T.usable : T.unusable, report.ok ? "good" : "bad")),
    report.problem ? el("p", { class: "bad", role: "alert" }, name(report.problem, 400)) : null,
    report.remedy ? el("p", { class: "faint" }, name(report.remedy, 400)) : null,
    rows.length ? pairs(rows) : null,
    report.accounts.length ? el("ul", { class: "parts accounts" }, ...report.accounts.map(accountLine)) : null);
}

// Resolves once the server serves the chain; rejects if it does not come back.
async function served(key, signal) {
  for (let look = 0; look < LOOKS && !signal.aborted; look += 1) {
    const { chains = [] } = await api.get("/dashboard/start").catch(() => ({}));
    if (chains.some((chain) => chain.key === key && chain.configured)) return;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  throw new Error(T.notBack);
}

// The file as it is and the lines that come in, and a button that writes them.
function keepCard(asked, chain, accounts, view) {
  const place = el("div", {});
  const card = el("section", { class: "card", id: "keep" }, el("h2", {}, T.keepTitle), el("p", {}, T.keepText), place);
  const failed = (error) => place.replaceChildren(failure(error, look));
  async function write(seen) {
    place.replaceChildren(el("p", { class: "busy", role: "status" }, T.restarts));
    try {
      await api.post("/dashboard/start/keep", { ...asked, seen });
      await served(chain.key, view.signal);
      // Transactions and gains need the history of the addresses; the portfolio does not.
      if (accounts.length) await api.post("/v1/sync-transactions", { addresses: accounts }).catch(() => null);
      location.hash = `#/portfolio?addresses=${accounts.join()}`;
    } catch (error) {
      failed(error);
    }
  }
  async function look() {
    place.replaceChildren(busy());
    try {
      const { path, before, added, seen } = await api.post("/dashboard/start/preview", asked);
      const text = (content) => el("pre", { class: "code scroll", tabindex: "0" }, content);
      place.replaceChildren(
        el("p", {}, seen ? T.fileIs : T.fileNew, " ", name(path, 300)),
        ...(seen ? [el("details", {}, el("summary", {}, T.fileNow), text(before))] : []),
        el("p", { class: "faint" }, T.fileAdded), text(added),
        button(T.write, () => write(seen), { class: "main", id: "write" }));
    } catch (error) {
      failed(error);
    }
  }
  place.append(button(T.keep, look, { id: "keep-chain" }));
  return card;
}

function field(id, label, control) {
  return el("div", { class: "field" }, el("label", { for: id }, label), control);
}

function controls(chains) {
  const text = (id, placeholder) =>
    el("input", { id, placeholder, autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const sorted = [...chains].sort((a, b) => a.name.localeCompare(b.name, "en"));
  const chain = el("select", { id: "start-chain" }, el("option", { value: "" }, T.anyChain),
    ...sorted.map((each) => el("option", { value: each.key }, each.configured ? T.configured(each.name) : each.name)));
  return { addresses: text("start-addresses", T.addressHint), rpc: text("start-rpc", T.endpointHint), chain };
}

export async function start(page, view) {
  page.replaceChildren(busy());
  let begin;
  try {
    begin = await api.get("/dashboard/start");
  } catch (error) {
    return page.replaceChildren(failure(error, view.render));
  }
  if (!begin.allowed) return page.replaceChildren(el("p", { class: "card" }, begin.reason));
  const form = controls(begin.chains), report = el("div", { id: "checked" }), shown = el("div", {});
  const show = el("button", { type: "submit", class: "main", id: "start-show", disabled: true }, TEXTS.show);
  const local = el("div", { class: "chips" });
  let timer, running = new AbortController(), last = null; // the report of what the form has now

  const asked = () => ({ rpc: form.rpc.value.trim(), chain: form.chain.value });
  const texts = () => form.addresses.value.split(/[\s,]+/).filter(Boolean);
  const fitting = () => (last?.accounts ?? []).filter((each) => !each.problem);

  function settle(result) {
    last = result;
    show.disabled = !(last?.ok && fitting().length);
  }

  const keeping = (chain) => (chain.configured ? el("p", { class: "card" }, T.isConfigured)
    : keepCard(asked(), chain, fitting().map((each) => each.address), view));

  async function check() {
    clearTimeout(timer);
    running.abort();
    settle(null);
    shown.replaceChildren();
    if (!asked().rpc) return report.replaceChildren();
    const mine = (running = new AbortController());
    const stop = button(T.stop, () => mine.abort(), { id: "stop" });
    report.replaceChildren(el("p", { class: "busy", role: "status" }, T.checking, " ", stop));
    try {
      const result = await api.post("/dashboard/start/check", { ...asked(), addresses: texts() }, mine.signal);
      if (mine !== running) return;
      settle(result);
      report.replaceChildren(reportCard(result), ...(result.ok ? [keeping(result.chain)] : []));
    } catch (error) {
      if (mine === running) report.replaceChildren(failure(mine.signal.aborted ? new Error(T.stopped) : error, check));
    }
  }

  async function read() {
    shown.replaceChildren(busy());
    const addresses = fitting().map((each) => each.address), mine = running;
    try {
      const documents = await api.post("/dashboard/start/portfolio", { ...asked(), addresses });
      if (mine !== running) return; // the form has changed meanwhile
      shown.replaceChildren(...holdings(documents));
      shown.scrollIntoView();
      page.dataset.ready = "yes";
    } catch (error) {
      if (mine === running) shown.replaceChildren(failure(error, read));
    }
  }

  async function submit(event) {
    event.preventDefault();
    if (last === null) await check();
    if (!show.disabled) await read();
  }

  function suggest() {
    const kind = begin.chains.find((each) => each.key === form.chain.value)?.kind;
    const nodes = Object.keys(T.kinds).filter((of) => of in begin.nodes && (!kind || of === kind));
    local.replaceChildren(el("span", { class: "faint" }, T.onThisMachine), ...nodes.map((of) =>
      button(`${T.kinds[of]} ${begin.nodes[of]}`, () => {
        form.rpc.value = begin.nodes[of];
        check();
      }, { class: "chip" })));
  }

  const later = () => {
    clearTimeout(timer);
    running.abort();
    settle(null);
    timer = setTimeout(check, PAUSE_MS);
  };
  form.addresses.addEventListener("input", later);
  form.rpc.addEventListener("input", later);
  form.chain.addEventListener("change", () => {
    suggest();
    check();
  });
  view.signal.addEventListener("abort", () => {
    clearTimeout(timer);
    running.abort();
  });
  suggest();
  const isFirst = !begin.chains.some((each) => each.configured);
  page.replaceChildren(
    el("form", { class: "card start", onsubmit: submit },
      el("h2", {}, isFirst ? T.title : T.addChain), el("p", {}, T.text),
      field("start-addresses", TEXTS.addresses, form.addresses), field("start-chain", T.chain, form.chain),
      field("start-rpc", T.endpoint, form.rpc), local, el("p", { class: "faint" }, T.endpointText), show),
    report, shown);
  form.addresses.value = chosen(view.fields).join(", ");
  form.addresses.focus();
}
