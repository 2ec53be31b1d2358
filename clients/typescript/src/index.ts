/** Typed client of the Chainfolio API. Amounts are decimal texts with every digit; `N/A` is an unknown number. */

import { ApiError, ChainfolioError, ConnectionFailed, InvalidAnswer } from "./errors.js";
import { pagesOf, type Operation, type Values } from "./pages.js";
import { blocks, reason, Silence } from "./streams.js";
import { EXACT, OPERATIONS, VERSION } from "./operations.js";
import type { CallOptions, Calls, Name } from "./types.js";

export { ApiError, ChainfolioError, ConnectionFailed, InvalidAnswer, VERSION };
export type { Answer, Arguments, CallOptions, Calls, Event, Name, Pages } from "./types.js";
export type { components } from "./schema.js";

/** Limits and parts of a client. */
export interface Options {
  /** How often a call is made at most, the first time included: 5. */
  attempts?: number;
  /** The longest wait before one attempt: 60. If `Retry-After` is longer, the call fails at once. */
  maxWaitS?: number;
  /** How long the server may be silent: 90. */
  timeoutS?: number;
  fetch?: typeof fetch;
  /** Waits for some seconds; `over` is aborted once nobody waits any more. */
  sleep?: (seconds: number, over: AbortSignal) => Promise<void>;
  random?: () => number;
}

export type Client = Calls;

const MIN_PAUSE_S = 0.5;
const MAX_PAUSE_S = 60;
const SILENCE_S = 45; // after which a stream of events is cut; a server sends something every 15 seconds

/**
 * Return a client of the server at an address (without `/v1`). `key` may be empty for calls that need none.
 * TypeError if the address is none or has a user or a password, or if the key cannot be one.
 */
export function createClient(url: string, key = "", options: Options = {}): Client {
  if (!/^[!-~]*$/.test(key)) throw new TypeError("an API key has printable characters only, and no spaces");
  const { username, password } = new URL(url);
  if (username || password) throw new TypeError("the address of the server has no user and no password");
  const connection = new Connection(url.replace(/\/+$/, ""), key, options);
  const calls = Object.keys(OPERATIONS).map((name) => [
    name,
    (args: Values = {}, more: CallOptions = {}) => connection.call(OPERATIONS[name as Name], args, more),
  ]);
  return Object.fromEntries(calls) as Client;
}

class Connection {
  readonly #key: string;
  readonly #options: Required<Options>;

  constructor(readonly url: string, key: string, options: Options) {
    this.#key = key;
    const send: typeof fetch = (...request) => globalThis.fetch(...request); // browsers want their window as `this`
    const defaults = { attempts: 5, maxWaitS: 60, timeoutS: 90, fetch: send, sleep, random: Math.random };
    this.#options = { ...defaults, ...defined(options) };
  }

  call(operation: Operation, given: Values, options: CallOptions): unknown {
    const args = defined(given);
    if (operation.position) return this.#pages(operation, args, options);
    if (operation.media === "events") return this.#events(operation, args, options);
    return this.#send(operation, args, options);
  }

  /** Return the document of an answer, or the answer itself with an open body if it is a file or a stream. */
  async #send(operation: Operation, args: Values, options: CallOptions): Promise<unknown> {
    const [url, init] = this.#request(operation, args, options);
    for (let attempt = 1; ; attempt++) {
      const error = await this.#attempt(operation, url, init, options);
      if (!(error instanceof ChainfolioError)) return error;
      const waitS = this.#waitS(attempt, error);
      if (waitS === undefined) throw error;
      await this.#wait(waitS, options.signal);
    }
  }

  async #attempt(operation: Operation, url: URL, init: RequestInit, options: CallOptions): Promise<unknown> {
    const silence = new Silence(operation.media === "events" ? SILENCE_S : this.#options.timeoutS, options.signal);
    const { fetch } = this.#options;
    let text: string;
    let response: Response;
    try {
      response = await fetch(url, { ...init, signal: silence.signal });
      if (response.ok && operation.media) return new Response(silence.watch(response.body), response);
      text = await response.text();
    } catch (fault) {
      options.signal?.throwIfAborted();
      return new ConnectionFailed(`${operation.method} ${url.pathname}: ${reason(fault)}`);
    } finally {
      silence.pause();
    }
    if (!response.ok) return new ApiError(response.status, response.headers, text);
    return response.status === 204 ? undefined : parse(`${operation.method} ${url.pathname}`, text);
  }

  /** Wait some seconds. If the signal is aborted, throw its reason at once. */
  async #wait(seconds: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    const { sleep } = this.#options;
    const over = new AbortController();
    const ended = new Promise<never>((_, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason), { signal: over.signal });
    });
    try {
      await Promise.race([sleep(seconds, over.signal), ended]);
    } finally {
      over.abort();
    }
  }

  #request(operation: Operation, args: Values, options: CallOptions): [URL, RequestInit] {
    const left = { ...args };
    const take = (name: string) => {
      const value = left[name];
      delete left[name];
      return value;
    };
    const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(take(name) ?? "");
      if (["", ".", ".."].includes(value)) throw new TypeError(`${operation.path}: ${name} cannot be "${value}"`);
      return encodeURIComponent(value);
    });
    const url = new URL(this.url + path);
    for (const name of operation.query) {
      const value = take(name);
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value)); // joins a list by commas
    }
    const headers = new Headers(); // a text that is no header is a TypeError here, and not sent again and again
    if (this.#key) headers.set("Authorization", `Bearer ${this.#key}`);
    if (operation.method !== "GET") headers.set("Idempotency-Key", options.idempotencyKey ?? randomUuid());
    if (options.delegateFor) headers.set("X-Delegate-For", options.delegateFor);
    if (options.lastEventId) headers.set("Last-Event-ID", options.lastEventId);
    const init: RequestInit = { method: operation.method, headers, redirect: "manual" };
    if (operation.body) {
      headers.set("Content-Type", "application/json");
      return [url, { ...init, body: JSON.stringify(left) }];
    }
    const [unknown] = Object.keys(left);
    if (unknown !== undefined) throw new TypeError(`${operation.path}: there is no argument ${unknown}`);
    return [url, init];
  }

  /** The seconds before the next attempt; undefined if there is none. */
  #waitS(attempt: number, error: ChainfolioError): number | undefined {
    const { attempts, maxWaitS, random } = this.#options;
    const isRefusal = error instanceof ApiError;
    const isTemporary = isRefusal ? [429, 503].includes(error.status) : error instanceof ConnectionFailed;
    if (!isTemporary || attempt >= attempts) return undefined;
    const saidS = isRefusal ? error.retryAfterS : undefined;
    if (saidS !== undefined) return saidS <= maxWaitS ? saidS : undefined;
    return Math.min(0.5 * 2 ** (attempt - 1), maxWaitS) * (0.5 + random() / 2);
  }

  #pages(operation: Operation, args: Values, options: CallOptions): object {
    const read = async (values: Values) => {
      const page = (await this.#send(operation, values, options)) as Values;
      list.issues.push(...((page["issues"] as unknown[] | undefined) ?? []));
      return page;
    };
    async function* pages(): AsyncGenerator<Values> {
      list.issues = [];
      yield* pagesOf(operation, args, read);
    }
    async function* items(): AsyncGenerator<unknown> {
      for await (const page of pages()) yield* page[operation.items ?? ""] as unknown[];
    }
    const list = { issues: [] as unknown[], pages, [Symbol.asyncIterator]: items };
    return list;
  }

  async *#events(operation: Operation, args: Values, options: CallOptions): AsyncGenerator<unknown> {
    let last = options.lastEventId ?? "";
    let pauseS = MIN_PAUSE_S;
    for (;;) {
      const response = (await this.#send(operation, args, { ...options, lastEventId: last })) as Response;
      if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
        await response.body?.cancel();
        throw new InvalidAnswer(`${operation.path}: the answer is no stream of events`);
      }
      try {
        for await (const fields of blocks(response)) {
          const { retry, id, event = "message", data } = fields;
          if (retry) pauseS = Math.min(Math.max(Number(retry) / 1000 || 0, MIN_PAUSE_S), MAX_PAUSE_S);
          last = id ?? last;
          if (data) yield { id: last, event, data: parse(operation.path, data) };
        }
      } catch (fault) {
        options.signal?.throwIfAborted();
        if (fault instanceof InvalidAnswer) throw fault; // else connect again
      }
      await this.#wait(pauseS, options.signal);
    }
  }
}

/** The entries that have a value: `undefined` counts as none, and does not replace a default. */
function defined<T extends object>(values: T): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;
}

function sleep(seconds: number, over: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    over.addEventListener("abort", () => clearTimeout(timer));
  });
}

/** A random UUID. `crypto.randomUUID` exists on pages of HTTPS only. */
function randomUuid(): string {
  const bytes = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte, place) =>
    place === 6 ? (byte & 0x0f) | 0x40 : place === 8 ? (byte & 0x3f) | 0x80 : byte,
  );
  const digits = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Read JSON. The numbers of the fields in EXACT become texts first, because JavaScript would round them. */
function parse(call: string, text: string): unknown {
  try {
    return JSON.parse(text.replace(EXACT, '$1"$2"'));
  } catch (fault) {
    throw new InvalidAnswer(`${call}: ${reason(fault)}`);
  }
}
