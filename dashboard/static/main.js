// The page: its head, its theme, and which page the address shows.
import * as api from "./api.js";
import { approvals } from "./approvals.js";
import { data } from "./data.js";
import { button, el, failure } from "./dom.js";
import { gains } from "./gains.js";
import { history as historyPage } from "./history.js";
import { login } from "./login.js";
import { nfts } from "./nfts.js";
import { operations, readiness } from "./operations.js";
import { portfolio } from "./portfolio.js";
import { positions } from "./positions.js";
import { start } from "./start.js";
import { status } from "./status.js";
import { TEXTS } from "./texts.js";
import { transactions } from "./transactions.js";
import { validators } from "./validators.js";

const PAGES = { portfolio, history: historyPage, transactions, gains, positions, nfts, approvals, validators,
  data, status, operations, start };
const UNLISTED = "start"; // reached by a link
const KEPT = ["addresses", "to"]; // what other pages show too
const top = document.getElementById("top"), page = document.getElementById("page");
let turn = 0, servesChains = false, shown = new AbortController(); // aborted when another page is shown

// Where the user is: `#/portfolio?addresses=…`.
function place() {
  const [path, fields] = location.hash.slice(1).split("?");
  const name = Object.hasOwn(PAGES, path.slice(1)) ? path.slice(1) : "portfolio"; // not `constructor`
  return { page: name, fields: new URLSearchParams(fields ?? "") };
}

function href(target, fields) {
  const text = fields.toString().replaceAll("%2C", ",");
  return `#/${target}${text ? `?${text}` : ""}`;
}

const go = (target, fields) => {
  location.hash = href(target, fields);
};

function shade(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

function otherTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  shade(now === "dark" ? "light" : "dark");
}

function head(here, credits) {
  const kept = new URLSearchParams([...here.fields].filter(([key]) => KEPT.includes(key)));
  const listed = Object.keys(PAGES).filter((key) => key !== UNLISTED || here.page === key);
  const links = listed.map((key) =>
    el("a", { href: href(key, kept), "aria-current": here.page === key ? "page" : null }, TEXTS.pages[key]));
  top.replaceChildren(
    el("a", { class: "logo", href: href("portfolio", kept) }, TEXTS.product),
    el("nav", {}, ...(credits === null ? [] : links)),
    el("div", { class: "tools" },
      credits === null ? null : el("span", { class: "credits" }, credits),
      el("a", { href: "/docs" }, TEXTS.documentation),
      button("◐", otherTheme, { "aria-label": TEXTS.theme, title: TEXTS.theme, class: "quiet" }),
      credits === null ? null : button(TEXTS.logOut, leave, { class: "quiet" })),
  );
}

async function leave() {
  await api.logOut().catch(() => null);
  await render();
}

// The token of a link that works once. It leaves no trace in the history of the browser.
function taken(here) {
  const link = here.fields.get("link");
  if (!link) return null;
  here.fields.delete("link");
  window.history.replaceState(null, "", href(here.page, here.fields));
  return link;
}

const exchange = (link) => api.logInByLink(link).then(() => null, (error) => error);

async function render(_event, refused) {
  const here = place(), mine = ++turn, link = taken(here);
  shown.abort();
  const { signal } = (shown = new AbortController());
  let credits;
  try {
    const look = servesChains ? null : readiness().catch(() => null);
    credits = await api.get("/v1/credits");
    servesChains ||= (await look)?.chains.length !== 0; // of an answer that did not come, nothing is concluded
  } catch (error) {
    if (error.status === 401 && link) return render(null, await exchange(link));
    if (mine !== turn) return;
    head(here, null);
    page.replaceChildren(error.status === 401 ? login(render, refused) : failure(error, render));
    return;
  }
  if (mine !== turn) return;
  if (!servesChains && here.page === "portfolio") here.page = "start";
  head(here, TEXTS.credits(BigInt(credits.credits ?? credits).toLocaleString("en-US")));
  if (link) return page.replaceChildren(otherSession(link));
  const inner = el("div", { class: "inner", "data-page": here.page });
  page.replaceChildren(el("h1", { class: "hidden" }, TEXTS.pages[here.page]), inner);
  document.title = `${TEXTS.pages[here.page]} · ${TEXTS.product}`;
  await PAGES[here.page](inner, { fields: here.fields, signal, go: (fields) => go(here.page, fields), render });
}

// Somebody else may have sent the link: it ends the session that there is only when its owner says so.
function otherSession(link) {
  const change = async () => {
    const refused = await exchange(link);
    if (refused) page.replaceChildren(failure(refused, render));
    else await render();
  };
  return el("section", { class: "card", id: "other" }, el("h1", {}, TEXTS.otherTitle), el("p", {}, TEXTS.otherText),
    button(TEXTS.otherDo, change), " ", button(TEXTS.otherKeep, render, { class: "main" }));
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
addEventListener("hashchange", render);
render();
