"use strict";
// Draws /openapi.json as a page to read and to try. Text from anywhere goes in as text nodes, never as HTML.

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; null children are left out. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Text in which `code` is code. */
function prose(text = "") {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

// --- schemas ---------------------------------------------------------------------------------------------------------

let description;

function resolved(schema = {}) {
  const seen = schema.$ref && schema.$ref.split("/").pop();
  return seen ? { name: seen, ...description.components.schemas[seen] } : schema;
}

function kind(raw) {
  const schema = resolved(raw);
  if (schema.anyOf) return schema.anyOf.map(kind).join(" | ");
  if (schema.type === "array") return `array of ${kind(schema.items)}`;
  if (schema.additionalProperties && !schema.properties) return `map of ${kind(schema.additionalProperties)}`;
  if (schema.enum) return schema.enum.map(String).join(" | ");
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type;
  return schema.name || [type, schema.format].filter(Boolean).join(", ") || "any";
}

/** The first object inside arrays, maps and alternatives: what there is to unfold. */
function inner(raw) {
  const schema = resolved(raw);
  if (schema.properties) return schema;
  if (schema.items) return inner(schema.items);
  if (typeof schema.additionalProperties === "object") return inner(schema.additionalProperties);
  return schema.anyOf ? schema.anyOf.map(inner).find(Boolean) : undefined;
}

function fields(raw, trail = []) {
  const schema = inner(raw);
  if (!schema) return null;
  const required = new Set(schema.required || []);
  const list = el("ul", { class: "fields" });
  for (const [name, property] of Object.entries(schema.properties)) {
    const head = [
      el("code", {}, name), " ", kind(property), required.has(name) ? null : " · optional",
      property.description ? el("span", {}, " – ", ...prose(property.description)) : null,
    ];
    const below = inner(property);
    const item = el("li");
    if (below && !trail.includes(below.name)) {
      const more = el("details", {}, el("summary", {}, el("span", {}, ...head.filter(Boolean))));
      more.addEventListener("toggle", () => {
        if (more.open && more.children.length === 1) more.append(fields(property, [...trail, schema.name]));
      });
      item.append(more);
    } else item.append(...head.filter(Boolean));
    list.append(item);
  }
  return list;
}

/** JSON with its keys, strings, numbers and words set apart. */
function painted(text) {
  const pre = el("pre");
  const parts = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;
  let end = 0;
  for (const match of text.matchAll(parts)) {
    pre.append(text.slice(end, match.index));
    const look = match[1] ? (match[2] ? "k" : "s") : match[3] ? "n" : "w";
    pre.append(el("span", { class: look }, match[1] || match[0]), match[2] || "");
    end = match.index + match[0].length;
  }
  pre.append(text.slice(end));
  return pre;
}

/** The same JSON, indented; text is never parsed into numbers, which would round them. */
function indented(text) {
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return text.replace(/"(?:\\.|[^"\\])*"|[{}[\],:]|\s+/g, (token, at) => {
    if (/^\s/.test(token)) return "";
    if (token === "{" || token === "[") {
      if (/^\s*[}\]]/.test(text.slice(at + 1))) return token;
      depth += 1;
      return token + line();
    }
    if (token === "}" || token === "]") {
      if (/[{[]\s*$/.test(text.slice(0, at))) return token;
      depth -= 1;
      return line() + token;
    }
    if (token === ",") return "," + line();
    return token === ":" ? ": " : token;
  });
}

// --- one operation ---------------------------------------------------------------------------------------------------

function control(parameter) {
  const { schema } = parameter;
  const options = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  const attributes = { name: parameter.name, "data-in": parameter.in, "aria-label": parameter.name };
  const example = parameter.example === undefined ? "" : String(parameter.example);
  if (options) {
    const unset = schema.default === undefined ? "" : `${schema.default} (default)`;
    const choices = options.map((value) => el("option", { selected: parameter.required && value === example }, value));
    return el("select", attributes, parameter.required ? null : el("option", { value: "" }, unset), ...choices);
  }
  const value = parameter.required ? example : "";
  return el("input", { ...attributes, placeholder: example, value, spellcheck: "false" });
}

function parameters(list) {
  return list.map((parameter) => el("div", { class: "parameter" },
    el("div", {},
      el("b", {}, parameter.name),
      el("span", { class: "kind" }, kind(parameter.schema).replace(/ \| /g, ", "),
        parameter.required ? el("span", { class: "must" }, " · required") : null)),
    el("div", {}, ...prose(parameter.description)),
    el("div", {}, control(parameter))));
}

function responses(all) {
  return Object.entries(all).map(([status, response]) => {
    const [media, content] = Object.entries(response.content || {})[0] || [];
    const unfolded = content && fields(content.schema);
    return el("details", {},
      el("summary", {},
        el("b", { class: `status s${status[0]}` }, status), el("span", {}, ...prose(response.description))),
      content ? el("p", {}, media === "application/json" ? `JSON: ${kind(content.schema)}` : media) : null,
      unfolded,
      content && content.example !== undefined ? painted(JSON.stringify(content.example, null, 2)) : null);
  });
}

function address(path, box) {
  const query = new URLSearchParams();
  let filled = path;
  for (const field of box.querySelectorAll("[data-in]")) {
    if (field.value === "") continue;
    if (field.dataset.in === "header") continue;
    if (field.dataset.in === "path") filled = filled.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else query.append(field.name, field.value);
  }
  const written = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return filled + (written ? `?${written}` : "");
}

/** What is sent beside the address: the key, header parameters, and the body where the operation takes one. */
function around(operation, box) {
  const headers = {};
  const key = $("key").value.trim();
  if (key && operation.security?.length !== 0) headers.Authorization = `Bearer ${key}`;
  for (const field of box.querySelectorAll("[data-in=header]")) {
    if (field.value !== "") headers[field.name] = field.value;
  }
  const body = box.querySelector("textarea")?.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return { headers, body };
}

/** The text of an answer; of a stream of events, what comes up to the end of the first one or a sign of life. */
async function textOf(answer) {
  if (!(answer.headers.get("Content-Type") || "").includes("event-stream")) return answer.text();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += value ?? "";
    if (done || /^(data: .*|:)\n\n/m.test(text)) {
      await reader.cancel();
      return text;
    }
  }
}

async function send(path, method, operation, box, button) {
  const result = box.querySelector(".result");
  const url = address(path, box);
  button.disabled = true;
  const began = performance.now();
  try {
    const answer = await fetch(url, { method: method.toUpperCase(), ...around(operation, box) });
    const text = await textOf(answer);
    const json = (answer.headers.get("Content-Type") || "").includes("json");
    result.replaceChildren(
      el("div", { class: "note" },
        el("b", { class: `status s${String(answer.status)[0]}` }, `${answer.status} ${answer.statusText}`),
        el("span", {}, `${Math.round(performance.now() - began)} ms`),
        el("span", {}, `request ${answer.headers.get("X-Request-Id")}`)),
      ...(json && answer.ok ? charts(text) : []),
      json ? painted(indented(text)) : el("pre", {}, text.slice(0, 20000)));
  } catch (error) {
    result.replaceChildren(el("div", { class: "note" }, `No answer: ${error.message}`));
  }
  button.disabled = false;
}

function curl(path, method, operation, box) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const { headers, body } = around(operation, box);
  delete headers.Authorization;
  const verb = method === "get" ? "" : `-X ${method.toUpperCase()} `;
  const words = [`curl ${verb}${quoted(location.origin + address(path, box))}`];
  if (operation.security?.length !== 0) words.push('-H "Authorization: Bearer $CHAINFOLIO_KEY"');
  for (const [name, value] of Object.entries(headers)) words.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body !== undefined) words.push(`-d ${quoted(body)}`);
  box.querySelector(".result").replaceChildren(el("pre", {}, words.join(" \\\n  ")));
}

/** The least that a schema takes, to begin from. */
function sample(schema) {
  const known = resolved(schema);
  if (known.examples) return known.examples[0];
  if (known.default !== undefined) return known.default;
  if (known.enum) return known.enum[0];
  if (known.type === "object") {
    const names = known.required?.length ? known.required : Object.keys(known.properties || {});
    return Object.fromEntries(names.map((name) => [name, sample(known.properties[name])]));
  }
  if (known.type === "array") return [sample(known.items)];
  return { integer: 0, number: 0, boolean: false }[known.type] ?? "";
}

function body(operation) {
  const schema = operation.requestBody?.content["application/json"].schema;
  if (!schema) return [];
  const text = JSON.stringify(sample(schema), null, 2);
  const rows = text.split("\n").length + 1;
  const field = el("textarea", { class: "body", "aria-label": "body", spellcheck: "false", rows });
  field.value = text;
  return [el("h4", {}, "Body"), el("p", {}, `JSON: ${kind(schema)}`), fields(schema), field].filter(Boolean);
}

// On a narrow screen operations and their list are folded: the page would be seventy screens long.
const wide = matchMedia("(min-width: 901px)");

/** Fold or unfold everything, as the width of the screen has it. */
function fold() {
  $("menu").open = wide.matches;
  for (const each of document.querySelectorAll("details.operation-form")) each.open = wide.matches;
}

/** Unfold the operation that the address names, and show it. */
function showNamed() {
  const section = location.hash && document.getElementById(location.hash.slice(1));
  if (!section) return;
  for (const each of section.querySelectorAll("details.operation-form")) each.open = true;
  if (!wide.matches) $("menu").open = false;
  section.scrollIntoView({ behavior: "instant" });
}

const anchor = (operation) => `op-${operation.operationId}`;

function operationBox(path, method, operation) {
  const box = el("section", { class: "operation", id: anchor(operation) });
  const list = operation.parameters || [];
  const button = el("button", { type: "button", onclick: () => send(path, method, operation, box, button) }, "Send");
  box.append(
    el("div", { class: "head" },
      el("div", { class: "line" },
        el("span", { class: method === "get" ? "method" : "method write" }, method.toUpperCase()),
        el("a", { class: "path", href: `#${anchor(operation)}` }, path),
        operation.security?.length === 0 ? el("span", { class: "open" }, "no key needed") : null),
      el("h3", {}, operation.summary)),
    el("details", { class: "operation-form" },
      el("summary", {}, el("span", {}, "Description, form and answers")),
      el("div", { class: "part" },
        el("p", {}, ...prose(operation.description)),
        list.length ? el("h4", {}, "Parameters") : null, ...parameters(list), ...body(operation)),
      el("div", { class: "try" }, button,
        el("button", { type: "button", class: "quiet", onclick: () => curl(path, method, operation, box) }, "as curl"),
        el("div", { class: "result", "aria-live": "polite" })),
      el("div", { class: "part" }, el("h4", {}, "Answers"), ...responses(operation.responses))));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT") button.click();
  });
  return box;
}

// --- the page --------------------------------------------------------------------------------------------------------

function draw() {
  $("version").textContent = description.info.version;
  $("main").append(el("div", { class: "intro" },
    el("h1", {}, `${description.info.title} API`),
    el("p", {}, ...prose(description.info.description)),
    el("p", {}, "Put your key into the field above to try the operations here; it stays in this tab. For programs: ",
      el("a", { href: "/openapi.json" }, "openapi.json"), ".")));
  for (const tag of description.tags) {
    $("nav").append(el("h2", {}, tag.name));
    $("main").append(el("h2", { class: "tag" }, tag.name, el("small", {}, tag.description)));
    for (const [path, methods] of Object.entries(description.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (!operation.tags.includes(tag.name)) continue;
        $("nav").append(el("a", { href: `#${anchor(operation)}`, title: path }, operation.summary));
        $("main").append(operationBox(path, method, operation));
      }
    }
  }
  fold();
  showNamed();
  wide.addEventListener("change", fold);
  addEventListener("hashchange", showNamed);
}

// Kept for this tab only, so that a reload does not ask again.
$("key").value = sessionStorage.getItem("key") || "";
$("key").addEventListener("input", () => sessionStorage.setItem("key", $("key").value));

fetch("/openapi.json").then((answer) => answer.json()).then((json) => { description = json; draw(); })
  .catch((error) => $("main").append(el("p", {}, `The description could not be loaded: ${error.message}`)));
