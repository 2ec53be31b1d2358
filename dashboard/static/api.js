// The public HTTP API, and the session of this page. Nothing else is asked.
import { TEXTS } from "./texts.js";

const HEADERS = { "X-Chainfolio-Dashboard": "1" };
const PATIENCE_MS = 90_000;

export class Refusal extends Error {
  constructor(status, message, document = null) {
    super(message);
    this.status = status;
    this.document = document;
  }
}

function messageOf(document, status) {
  if (typeof document === "string") return document;
  const error = document?.error;
  return document?.message || error?.message || (typeof error === "string" ? error : TEXTS.failed(status));
}

// The answer to a request, and its body as `read` has it. Refusals have the message of the server.
async function send(method, path, body, stop, read) {
  const late = AbortSignal.timeout(PATIENCE_MS), signal = stop ? AbortSignal.any([late, stop]) : late;
  const options = { method, headers: { ...HEADERS }, signal };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer, content;
  try {
    answer = await fetch(path, options);
    content = await (answer.ok ? read(answer) : answer.text());
  } catch (error) {
    throw new Refusal(0, error.name === "TimeoutError" ? TEXTS.tooSlow : TEXTS.noAnswer);
  }
  if (answer.ok) return [answer, content];
  const document = parsed(answer, content);
  throw new Refusal(answer.status, messageOf(document, answer.status), document);
}

function parsed(answer, text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    throw new Refusal(answer.status, TEXTS.failed(answer.status));
  }
}

const ask = async (method, path, body, stop) =>
  parsed(...await send(method, path, body, stop, (answer) => answer.text()));

const query = (fields) => new URLSearchParams(Object.entries(fields).filter(([, value]) => value)).toString();

export const logIn = (key) => ask("POST", "/dashboard/session", { key });
export const logInByLink = (link) => ask("POST", "/dashboard/session", { link });
export const logOut = () => ask("DELETE", "/dashboard/session");
export const get = (path, fields = {}) => ask("GET", `${path}?${query(fields)}`);

// The text of a stream of events, as it comes; `last` is the id of the last event that is here.
export async function stream(path, fields, last, signal) {
  const headers = { ...HEADERS, ...(last ? { "Last-Event-ID": last } : {}) };
  const answer = await fetch(`${path}?${query(fields)}`, { headers, signal });
  if (!answer.ok) throw new Refusal(answer.status, TEXTS.failed(answer.status));
  return answer.body.pipeThrough(new TextDecoderStream());
}

export const post = (path, body, signal) => ask("POST", path, body, signal);
export const remove = (path) => ask("DELETE", path);

// The body of an answer to a POST as a file, and its headers.
export async function file(path, body, signal) {
  const [answer, blob] = await send("POST", path, body, signal, (each) => each.blob());
  return { blob, headers: answer.headers };
}
