"use strict";
// Charts of what an answer says day by day: lines between days that are known, and nothing between the others.

const SVG = document.getElementById("pen").namespaceURI;
const WIDE = 640, NARROW = 340, HIGH = 200, LEFT = 96, RIGHT = 12, TOP = 12, BOTTOM = 24;
const MARKS = 4;
const FLAT = 1e-6;
const UNKNOWN = "N/A";

function drawn(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Runs of points that follow each other and are known: the others have no line. */
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length);
}

/** The lowest and the highest value; a line that is flat but for a millionth lies in the middle. */
function limits(points) {
  const values = points.filter((point) => point.value !== null).map((point) => point.value);
  const low = Math.min(...values), high = Math.max(...values);
  const least = Math.max(Math.abs(low), Math.abs(high)) * FLAT;
  const room = high - low > least ? 0 : least || 1;
  return [low - room, high + room];
}

/** A value as people read it on an axis, with the digits by which two marks differ. */
function label(value, span) {
  const step = span / MARKS, places = step >= 1 ? 0 : Math.min(8, 1 + Math.ceil(-Math.log10(step)));
  return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

/** One chart with its title; numbers are rounded only to be drawn, the exact ones are in the answer below. */
function chart(title, points) {
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, title));
  const known = runs(points);
  if (!known.length) {
    figure.append(el("p", {}, "not known on any of these days"));
    return figure;
  }
  const [low, high] = limits(points);
  const wide = document.documentElement.clientWidth > WIDE ? WIDE : NARROW;  // so that its text stays readable
  const first = points[0].day, days = Math.max(1, points.at(-1).day - first);
  const across = (day) => LEFT + ((wide - LEFT - RIGHT) * (day - first)) / days;
  const up = (value) => HIGH - BOTTOM - ((HIGH - TOP - BOTTOM) * (value - low)) / (high - low);
  const svg = drawn("svg", { viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": title });
  for (let at = 0; at <= MARKS; at += 1) {
    const value = low + ((high - low) * at) / MARKS, y = up(value);
    svg.append(
      drawn("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y, y2: y }),
      drawn("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, label(value, high - low)));
  }
  for (const run of known) {
    const path = run.map((point) => `${across(point.day).toFixed(1)},${up(point.value).toFixed(1)}`).join(" ");
    if (run.length > 1) svg.append(drawn("polyline", { class: "line", points: path }));
    for (const point of run) {
      svg.append(drawn("circle", { class: "dot", cx: across(point.day), cy: up(point.value), r: 2.5 },
        drawn("title", {}, `${point.name}: ${point.said}`)));
    }
  }
  svg.append(
    drawn("text", { x: LEFT, y: HIGH - 6 }, points[0].name),
    drawn("text", { x: wide - RIGHT, y: HIGH - 6, "text-anchor": "end" }, points.at(-1).name));
  figure.append(svg);
  return figure;
}

/** The series of a field over the days of an answer; days that the answer leaves out are not known. */
function series(days, field, scale = 1) {
  const points = [];
  for (const each of days) {
    const day = Date.parse(each.day) / 86400000;
    const before = points.at(-1);
    if (before && day - before.day > 1) points.push({ day: before.day + 1, name: "", value: null });
    const said = each[field];
    points.push({ day, name: each.day, said, value: said === UNKNOWN ? null : scale * Number(said) });
  }
  return points;
}

/** The charts of an answer: of what has days with values and growth; none of anything else. */
function charts(text) {
  const said = JSON.parse(text);
  if (!Array.isArray(said.days) || !said.days.length || said.days[0].growth === undefined) return [];
  return [
    chart(`Worth in ${said.currency} as each day began`, series(said.days, "value")),
    chart("What 100 became, whatever was paid in or taken out", series(said.days, "growth", 100)),
  ];
}
