// Queries in SQL over the index: its tables, an editor, the result as a table and a chart, and files of it.
import * as api from "./api.js";
import { chosen } from "./addresses.js";
import { chartLibrary, colour, redrawn } from "./chart.js";
import { compare, forPixels, isKnown } from "./decimal.js";
import { busy, button, el, failure, hash, name } from "./dom.js";
import { save } from "./download.js";
import { TEXTS } from "./texts.js";

const MOST_ROWS = 500, MOST_BARS = 20, HEIGHT = 320, MIB = 1 << 20;
const LIMITS = [100, 1000, 10_000, 100_000];
const FILES = { csv: "csv", parquet: "parquet", arrow: "arrows" };
const NUMBER = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|DOUBLE|FLOAT)$/, TIME = /^(TIMESTAMP.*|DATE)$/;
const T = TEXTS.data;

// Queries to begin with; that of a wallet asks for the one that is shown on the other pages.
const examples = (wallet) => [
  [T.examples.tokens, "SELECT token, count(*) AS transfers, total(raw) AS total\nFROM transfers\nGROUP BY token\n"
    + "ORDER BY transfers DESC\nLIMIT 20"],
  [T.examples.gas, "SELECT height, gas_used, tx_count\nFROM blocks\nORDER BY height DESC\nLIMIT 200"],
  [T.examples.wallet, "SELECT time, direction, token, raw_dec, counterparty, tx_hash\n"
    + `FROM account_transfers_of('${wallet}')\nORDER BY height DESC\nLIMIT 100`],
  [T.examples.spenders, "SELECT spender, count(*) AS approvals, count(DISTINCT owner) AS owners\nFROM approvals\n"
    + "GROUP BY spender\nORDER BY approvals DESC\nLIMIT 20"],
];
const ZERO = "0x0000000000000000000000000000000000000000";

function size(bytes) {
  const [unit, divisor] = bytes >= MIB ? ["MiB", MIB] : ["KiB", MIB / 1024];
  return `${(bytes / divisor).toLocaleString("en-US", { maximumFractionDigits: 1 })} ${unit}`;
}

const head = (content, more = {}) => el("th", { scope: "col", ...more }, content);

function scroll(label, heads, lines, more = {}) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", more, el("thead", {}, el("tr", {}, ...heads)),
      el("tbody", {}, ...lines)));
}

function tableList(tables, use) {
  const columns = (table) => scroll(table.name, Object.values(T.columns).map((each) => head(each)),
    table.columns.map((each) => el("tr", {}, el("th", { scope: "row", class: "code" }, each.name),
      el("td", { class: "code" }, each.type), el("td", {}, name(each.description, 200)))), { class: "columns" });
  const item = (table) => {
    const text = table.rows ? T.content(table.rows.toLocaleString("en-US"), size(table.bytes), table.chains.join(", "))
      : T.noRows;
    const box = el("details", { class: "record", "data-table": table.name, "data-rows": String(table.rows) },
      el("summary", {}, el("b", { class: "code" }, table.name), el("span", { class: "faint" }, text)));
    const open = () => box.childElementCount === 1 && box.append(el("div", { class: "details" },
      el("p", {}, name(table.description, 400)), columns(table),
      button(T.use, () => use(`SELECT *\nFROM ${table.name}\nLIMIT 100`))));
    box.addEventListener("toggle", open);
    return box;
  };
  return el("section", { class: "card" }, el("h2", {}, T.tables), el("p", { class: "faint" }, T.tablesText),
    ...tables.map(item));
}

function cellText(value) {
  if (value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function rowTable(result) {
  const kinds = result.columns.map((each) => NUMBER.test(each.type));
  const line = (row) => el("tr", {}, ...row.map((value, at) => el("td", { class: kinds[at] ? "figure-cell" : "" },
    value === null ? el("span", { class: "faint" }, T.none)
      : kinds[at] ? cellText(value) : name(cellText(value), 80))));
  const heads = result.columns.map((each, at) =>
    head(name(each.name, 60), { title: each.type, class: kinds[at] ? "figure-cell" : null }));
  return scroll(T.result, heads, result.rows.slice(0, MOST_ROWS).map(line), { id: "rows" });
}

// A moment in seconds, or a number, for the axis.
function onAxis(value, isTime) {
  if (value === null) return null;
  if (!isTime) return forPixels(String(value));
  const time = Date.parse(String(value).replace(" ", "T"));
  return Number.isNaN(time) ? null : time / 1000;
}

async function lines(result, x, y) {
  const Plot = await chartLibrary(), isTime = TIME.test(result.columns[x].type);
  const points = result.rows.map((row) => [onAxis(row[x], isTime), forPixels(cellText(row[y])), row])
    .filter(([at]) => at !== null).sort((a, b) => a[0] - b[0]);
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 3 });
  const shown = (column) => (plot, value, series, index) => (index === null ? "" : cellText(points[index][2][column]));
  const numbers = (plot, ticks) => ticks.map((tick) => compact.format(tick));
  const place = el("div", { class: "chart" });
  const draw = () => {
    const options = {
      width: Math.max(200, place.clientWidth), height: HEIGHT, scales: { x: { time: isTime } },
      tzDate: (time) => Plot.tzDate(new Date(time * 1e3), "Etc/UTC"),
      axes: [{ ...axis, ...(isTime ? {} : { values: numbers }) }, { ...axis, size: 70, values: numbers }],
      series: [{ label: result.columns[x].name, value: shown(x) },
        { label: result.columns[y].name, value: shown(y), stroke: colour("--accent"), fill: colour("--accent-soft"),
          width: 2, spanGaps: false, points: { show: points.length < 60 } }],
    };
    place.replaceChildren();
    new Plot(options, [points.map(([at]) => at), points.map(([, value]) => value)], place);
  };
  return redrawn(place, draw);
}

function bars(result, x, y) {
  const rows = result.rows.filter((row) => isKnown(cellText(row[y]))).slice(0, MOST_BARS);
  const most = rows.map((row) => cellText(row[y])).reduce((a, b) => (compare(a, b) < 0 ? b : a), "0");
  const line = (row) => {
    const fill = el("span", { class: "bar-fill" }), part = forPixels(cellText(row[y])) / (forPixels(most) || 1);
    fill.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
    const label = row[x] === null ? T.none : cellText(row[x]);
    return el("div", { class: "bar-row" }, el("div", { class: "row spread" },
      el("span", {}, /^0x[0-9a-f]{16,}$/.test(label) ? hash(label) : name(label, 60)),
      el("span", {}, cellText(row[y]))),
      el("div", { class: "track" }, fill));
  };
  return el("div", { class: "bars" }, ...rows.map(line));
}

// A chart of one column over another one: bars over texts, a line over times and numbers.
function chart(result) {
  const indexes = result.columns.map((each, at) => at);
  const numbers = indexes.filter((at) => NUMBER.test(result.columns[at].type));
  if (!numbers.length || result.columns.length < 2 || !result.rows.length) return null;
  const pick = (id, label, options, at) => {
    const field = el("select", { id }, ...options.map((each) =>
      el("option", { value: String(each), selected: each === at }, result.columns[each].name.slice(0, 60))));
    field.addEventListener("change", () => draw());
    return [field, el("label", { for: id }, label, field)];
  };
  const first = indexes.find((at) => !numbers.includes(at)) ?? 0;
  const [x, xLabel] = pick("x", T.over, indexes, first);
  const [y, yLabel] = pick("y", T.of, numbers, numbers.find((at) => at !== first) ?? numbers[0]);
  const place = el("div", { id: "chart" });
  const draw = async () => {
    const isLine = NUMBER.test(result.columns[x.value].type) || TIME.test(result.columns[x.value].type);
    place.replaceChildren(isLine ? await lines(result, Number(x.value), Number(y.value))
      : bars(result, Number(x.value), Number(y.value)));
  };
  const box = el("details", { id: "charts" }, el("summary", {}, T.chart),
    el("div", { class: "filters plain" }, yLabel, xLabel), place);
  box.addEventListener("toggle", () => box.open && !place.childElementCount && draw());
  return box;
}

function resultOf(result, headers, files) {
  const counts = T.counts(result.rows.length.toLocaleString("en-US"), size(headers.get("Chainfolio-Bytes-Read")),
    headers.get("Chainfolio-Credits"));
  const notes = [result.more ? T.cut : null, result.rows.length > MOST_ROWS ? T.drawn(MOST_ROWS) : null];
  return el("section", { class: "card", id: "result" },
    el("div", { class: "row spread" }, el("h2", {}, T.result), files),
    el("p", { class: "faint", role: "status" }, [counts, ...notes.filter(Boolean)].join(" ")), chart(result),
    rowTable(result));
}

// The saved queries of the account, in a field; `again` reads them anew.
function savedQueries(stored, text, again) {
  const field = el("select", { id: "saved" }, el("option", { value: "" }, T.chooseSaved),
    ...stored.map((each) => el("option", { value: each.name }, each.name)));
  const title = el("input", { id: "title", pattern: "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", placeholder: T.titleHint,
    autocomplete: "off" });
  const remove = button(T.remove, () => again(api.remove(`/v1/sql/queries/${encodeURIComponent(field.value)}`)),
    { class: "quiet", disabled: true });
  field.addEventListener("change", () => {
    const query = stored.find((each) => each.name === field.value);
    remove.disabled = !query;
    if (query) [text.value, title.value] = [query.query, query.name];
  });
  const store = (event) => {
    event.preventDefault();
    if (title.value) again(api.post("/v1/sql/queries", { name: title.value, query: text.value }));
  };
  return el("form", { class: "filters plain", onsubmit: store }, el("label", { for: "saved" }, T.saved, field),
    el("label", { for: "title" }, T.title, title), el("button", { type: "submit" }, T.save), remove);
}

export async function data(page, view) {
  const wallet = chosen(view.fields)[0] ?? ZERO, place = el("div", {}, busy());
  page.replaceChildren(place);
  let tables, stored;
  try {
    [tables, stored] = await Promise.all([api.get("/v1/sql/tables"), api.get("/v1/sql/queries")]);
  } catch (error) {
    return place.replaceChildren(failure(error, () => data(page, view)));
  }
  const [[, first]] = examples(wallet);
  const text = el("textarea", { id: "query", rows: 8, spellcheck: "false", class: "code", "aria-describedby": "keys" });
  text.value = first;
  const limit = el("select", { id: "limit" }, ...LIMITS.map((each) =>
    el("option", { value: String(each), selected: each === 1000 }, each.toLocaleString("en-US"))));
  const output = el("div", {}), kept = el("div", {}), use = (query) => { text.value = query; text.focus(); };
  let running = null;
  const go = el("button", { type: "submit", class: "main" }, T.run);
  const stop = button(T.stop, () => running?.abort(), { disabled: true });
  const busyWith = (controller) => {
    running = controller;
    go.disabled = controller !== null;
    stop.disabled = controller === null;
  };
  view.signal.addEventListener("abort", () => running?.abort());

  const ask = async (format, work) => {
    if (running) return;
    busyWith(new AbortController());
    try {
      const body = { query: text.value, limit: Number(limit.value), format };
      await work(await api.file("/v1/sql", body, running.signal));
    } catch (error) {
      output.prepend(el("div", { class: "card" }, running?.signal.aborted ? el("p", {}, T.stopped) : failure(error)));
    } finally {
      busyWith(null);
    }
  };
  const files = () => el("span", {}, ...Object.entries(FILES).map(([format, ending]) => button(T.files[format],
    () => ask(format, ({ blob }) => save(`result.${ending}`, blob)), { class: "quiet", title: T.fileHint })));
  const run = (event) => {
    event?.preventDefault();
    output.replaceChildren(busy());
    return ask("json", async ({ blob, headers }) => {
      output.replaceChildren(resultOf(JSON.parse(await blob.text()), headers, files()));
    }).finally(() => output.querySelector(":scope > .busy")?.remove());
  };
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  });

  const keep = async (change) => {
    try {
      await change;
      stored = await api.get("/v1/sql/queries");
      kept.replaceChildren(savedQueries(stored.data, text, keep));
    } catch (error) {
      kept.prepend(failure(error));
    }
  };
  kept.append(savedQueries(stored.data, text, keep));
  const chips = examples(wallet).map(([label, query]) => button(label, () => use(query), { class: "chip" }));
  place.replaceChildren(
    el("section", { class: "card" }, el("h2", {}, T.query), el("p", { class: "faint" }, T.text),
      el("div", { class: "chips" }, ...chips),
      el("form", { class: "sql", onsubmit: run }, el("label", { for: "query", class: "hidden" }, T.query), text,
        el("p", { class: "faint", id: "keys" }, T.keys),
        el("div", { class: "filters plain" }, el("label", { for: "limit" }, T.limit, limit), go, stop)), kept),
    output, tableList(tables.data, use));
  page.dataset.ready = "yes";
}
