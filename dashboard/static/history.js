// What the addresses were worth day by day, with gaps at days that are unknown.
import * as api from "./api.js";
import { addressBar, chosen } from "./addresses.js";
import { chartLibrary, colour, redrawn } from "./chart.js";
import { daysBefore, lastDay, needsSubscription } from "./days.js";
import { asPercent, forPixels, isKnown, money } from "./decimal.js";
import { busy, el, failure, name } from "./dom.js";
import { TEXTS } from "./texts.js";

const CURRENCIES = ["USD", "EUR", "CAD", "AED", "CHF", "SGD", "ETH", "SOL", "cbBTC", "EURC", "BNB"];
const DAY_S = 86_400, STEPS = [1, 2, 7, 14, 30, 90, 180, 365, 730].map((days) => days * DAY_S); // of the axis
const HEIGHT = 320, PERCENTS = ["timeWeightedReturn", "moneyWeightedReturn"];

const dayOf = (time) => new Date(time * 1000).toISOString().slice(0, 10);

async function chart(days, unit) {
  const Plot = await chartLibrary();
  const place = el("div", { class: "chart" });
  const data = [days.map((each) => Date.parse(each.day) / 1000), days.map((each) => forPixels(each.value))];
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 3 });
  const shown = (plot, value, series, index) => (index === null ? "" : money(days[index].value, unit));
  const draw = () => {
    const options = {
      width: Math.max(200, place.clientWidth), height: HEIGHT, tzDate: (time) => Plot.tzDate(new Date(time * 1e3),
        "Etc/UTC"),
      scales: { x: { time: true } },
      axes: [{ ...axis, incrs: STEPS, space: 90, values: (plot, ticks) => ticks.map(dayOf) },
        { ...axis, size: 70, values: (plot, ticks) => ticks.map((tick) => compact.format(tick)) }],
      series: [{ value: (plot, value, series, index) => (index === null ? "" : days[index].day) },
        { label: TEXTS.day.value, stroke: colour("--accent"), fill: colour("--accent-soft"), width: 2, spanGaps: false,
          value: shown, points: { show: days.length < 60 } }],
    };
    place.replaceChildren();
    new Plot(options, data, place);
  };
  return redrawn(place, draw);
}

function stats(answer, unit) {
  const shown = (key) => {
    const value = key === "drawdown" ? answer.drawdown?.part : answer[key];
    if (key !== "drawdown" && !PERCENTS.includes(key)) return [money(value, unit), value];
    return [isKnown(value) ? `${asPercent(value)} %` : TEXTS.unknown, value];
  };
  return el("div", { class: "figures" }, ...Object.entries(TEXTS.stats).map(([key, label]) => {
    const [text, exact] = shown(key);
    return el("div", { class: "figure" }, el("span", { class: "faint" }, label),
      el("span", { title: exact, "data-stat": key, "data-exact": exact }, text));
  }));
}

function dayTable(days, unit) {
  const heads = Object.values(TEXTS.day).map((text) => el("th", { scope: "col" }, text));
  const line = (each) => el("tr", { "data-day": each.day }, el("th", { scope: "row" }, each.day),
    el("td", { title: each.value }, money(each.value, unit)), el("td", { title: each.flow }, money(each.flow, unit)),
    el("td", {}, name(each.reason, 200)));
  return el("details", { id: "days" }, el("summary", {}, TEXTS.days(days.length)),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": TEXTS.valueOverTime },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...days.map(line)))));
}

function rangeForm(view, since, until, currency) {
  const from = el("input", { id: "from", type: "date", value: since });
  const to = el("input", { id: "to", type: "date", value: until });
  const unit = el("select", { id: "currency" },
    ...CURRENCIES.map((each) => el("option", { value: each, selected: each === currency }, each)));
  const apply = (event) => {
    event.preventDefault();
    for (const field of [from, to, unit]) view.fields.set(field.id, field.value);
    view.go(view.fields);
  };
  return el("form", { class: "card filters", onsubmit: apply },
    ...[[TEXTS.from, from], [TEXTS.to, to], [TEXTS.currency, unit]].map(([label, field]) =>
      el("label", { for: field.id }, label, field)),
    el("button", { type: "submit", class: "main" }, TEXTS.apply));
}

export async function history(page, view) {
  page.replaceChildren(await addressBar(view));
  if (!chosen(view.fields).length) return page.append(el("p", { class: "card" }, TEXTS.empty));
  const until = lastDay(view.fields), since = view.fields.get("from") ?? daysBefore(until, 30);
  const currency = view.fields.get("currency") ?? "USD", unit = currency === "USD" ? "$" : currency;
  const place = el("section", { class: "card" }, busy());
  page.append(rangeForm(view, since, until, currency), place);
  try {
    const answer = await api.get("/v1/performance",
      { addresses: chosen(view.fields).join(), startDate: since, endDate: until, currency });
    place.replaceChildren(el("h2", {}, TEXTS.valueOverTime), stats(answer, unit), await chart(answer.days, unit),
      el("p", { class: "faint" }, TEXTS.zoomHint), dayTable(answer.days, unit));
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => history(page, view)),
      ...(error.status === 403 ? [needsSubscription(view)] : []));
  }
}
