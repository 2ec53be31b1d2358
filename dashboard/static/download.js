// Files that the browser saves; they are answers of the API, or made of them, and go over no network.
import { el } from "./dom.js";

// What a spreadsheet takes for the beginning of a formula, full-width characters too.
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/, NUMBER = /^-?[0-9]+(\.[0-9]+)?$/;

function csvCell(value) {
  const text = String(value ?? "").replaceAll("\r", " ");
  const plain = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

// Comma-separated values with exact numbers; no cell is a formula.
export const csv = (columns, rows) =>
  [columns, ...rows.map((row) => columns.map((key) => row[key]))].map((row) => `${row.map(csvCell).join(",")}\n`)
    .join("");

export const download = (file, type, text) => save(file, new Blob([text], { type: `${type};charset=utf-8` }));

export function save(file, blob) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: file });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
