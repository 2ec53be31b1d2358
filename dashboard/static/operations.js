// How the server does: its chains, the endpoints that it asks, and its background tasks. It costs no credits.
import * as api from "./api.js";
import { badge, busy, button, el, failure, name } from "./dom.js";
import { addChain } from "./start.js";
import { TEXTS } from "./texts.js";

// A server that is not ready answers 503 with the same document.
export async function readiness() {
  try {
    return await api.get("/readyz");
  } catch (error) {
    if (error.status === 503 && error.document?.chains) return error.document;
    throw error;
  }
}

export const verdict = (good, yes, no) => badge(good ? yes : no, good ? "good" : "bad");

const count = (number) => el("td", { class: "figure-cell" }, String(number ?? TEXTS.unknown));

function table(id, title, heads, lines) {
  return el("section", { class: "card" }, el("h2", {}, title),
    lines.length ? el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title },
      el("table", { id, class: "numbers" }, el("thead", {}, el("tr", {},
        ...Object.values(heads).map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, ...lines)))
      : el("p", { class: "faint" }, TEXTS.none));
}

function endpointLine(chain, each) {
  return el("tr", {}, el("th", { scope: "row" }, name(chain.key), " ", name(each.endpoint)),
    el("td", {}, verdict(!each.quarantined, TEXTS.inUse, TEXTS.quarantined)),
    count(each.height), count(each.lagBlocks), count(each.latencyMs), count(each.faults));
}

function taskLine(task) {
  return el("tr", {}, el("th", { scope: "row" }, name(task.task), " ", name(task.chain ?? "")),
    el("td", {}, verdict(task.healthy, TEXTS.healthy, TEXTS.unhealthy)), count(task.failures),
    el("td", { class: "note" }, name(task.reason ?? "", 300)));
}

export async function operations(page, view) {
  page.replaceChildren(busy());
  try {
    const [{ ready, chains, tasks }, add] = await Promise.all([readiness(), addChain()]);
    page.replaceChildren(
      el("section", { class: "card" }, el("div", { class: "row" }, el("h2", {}, TEXTS.server),
        verdict(ready, TEXTS.ready, TEXTS.notReady), button(TEXTS.refresh, () => operations(page, view)), add)),
      table("endpoints", TEXTS.endpoints, TEXTS.endpointColumns,
        chains.flatMap((chain) => chain.endpoints.map((each) => endpointLine(chain, each)))),
      table("tasks", TEXTS.tasks, TEXTS.taskColumns, tasks.map(taskLine)));
    page.dataset.ready = "yes";
  } catch (error) {
    page.replaceChildren(failure(error, () => operations(page, view)));
  }
}
