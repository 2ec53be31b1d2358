// Whether all is there: what is indexed for each address and chain, and what is missing.
import * as api from "./api.js";
import { addressBar, chosen, labelOf } from "./addresses.js";
import { badge, busy, button, el, failure, name } from "./dom.js";
import { live } from "./live.js";
import { readiness, verdict } from "./operations.js";
import { addChain } from "./start.js";
import { TEXTS } from "./texts.js";

function wallet(status) {
  const issues = status.issues.map((issue) => el("li", {},
    name(`${issue.adapter} ${issue.subject}: ${issue.reason}`, 400)));
  const times = [[TEXTS.portfolioRead, status.portfolioLastSync], [TEXTS.indexedUpTo, status.transactionsLastSync]];
  return el("section", { class: "card", "data-address": status.address },
    el("div", { class: "row" }, el("h2", {}, name(labelOf(status.address))),
      verdict(status.completeness === "complete", TEXTS.complete, TEXTS.partial),
      status.syncInProgress ? badge(TEXTS.syncing) : null),
    el("dl", {}, ...times.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value ?? TEXTS.never)])),
    issues.length ? el("ul", {}, ...issues) : null);
}

function chainTable(chains) {
  const heads = Object.values(TEXTS.chainColumns).map((text) => el("th", { scope: "col" }, text));
  const line = (chain) => el("tr", { "data-chain": chain.key }, el("th", { scope: "row" }, name(chain.key)),
    el("td", {}, verdict(chain.healthy, TEXTS.healthy, TEXTS.unhealthy)),
    el("td", {}, String(chain.indexed ?? TEXTS.unknown)), el("td", {}, String(chain.head ?? TEXTS.unknown)),
    el("td", {}, String(chain.lagBlocks ?? TEXTS.unknown)), el("td", {}, name(chain.reason ?? "", 300)));
  return el("section", { class: "card" }, el("h2", {}, TEXTS.chains),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": TEXTS.chains },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...chains.map(line)))));
}

export async function status(page, view) {
  const addresses = chosen(view.fields).join(), place = el("div", {}, busy());
  page.replaceChildren(await addressBar(view), place);
  try {
    const [ready, wallets, add] = await Promise.all([readiness(),
      addresses ? api.get("/v1/status", { addresses }) : [], addChain()]);
    const cards = el("div", { id: "wallets" }, ...wallets.map(wallet));
    place.replaceChildren(cards, chainTable(ready.chains),
      el("div", { class: "row" }, button(TEXTS.refresh, view.render), add));
    page.dataset.ready = "yes";
    if (addresses) live(addresses, view.signal, (changed) => cards.replaceChildren(...changed.map(wallet)));
  } catch (error) {
    place.replaceChildren(failure(error, () => status(page, view)));
  }
}
