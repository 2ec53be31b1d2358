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
  sleep?: (seconds: number) => Promise<void>;
  random?: () => number;
}

export type Client = Calls;

const MIN_PAUSE_S = 0.5;
const MAX_PAUSE_S = 60;
const SILENCE_S = 45; // after which a stream of events is cut; a server sends something every 15 seconds

/** Return a client of the server at an address (without `/v1`). `key` may be empty for calls that need none. */
export function createClient(url: string, key = "", options: Options = {}): Client {
  if (!/^[!-~]*$/.test(key)) throw new TypeError("an API key has printable characters only, and no spaces");
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
    const sleep = (seconds: number) => new Promise<void>((resolve) => setTimeout(resolve, seconds * 1000));
    const defaults = { attempts: 5, maxWaitS: 60, timeoutS: 90, fetch: globalThis.fetch, sleep, random: Math.random };
    this.#options = { ...defaults, ...options };
  }

  call(operation: Operation, args: Values, options: CallOptions): unknown {
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
      await this.#options.sleep(waitS);
    }
  }

  async #attempt(operation: Operation, url: URL, init: RequestInit, options: CallOptions): Promise<unknown> {
    const silence = new Silence(operation.media === "events" ? SILENCE_S : this.#options.timeoutS, options.signal);
    let text: string;
    let response: Response;
    try {
      response = await this.#options.fetch(url, { ...init, signal: silence.signal });
      if (response.ok && operation.media) return new Response(silence.watch(response.body), response);
      text = await response.text();
    } catch (fault) {
      if (options.signal?.aborted) throw fault;
      return new ConnectionFailed(`${operation.method} ${url.pathname}: ${reason(fault)}`);
    } finally {
      silence.pause();
    }
    if (!response.ok) return new ApiError(response.status, response.headers, text);
    return response.status === 204 ? undefined : parse(`${operation.method} ${url.pathname}`, text);
  }

  #request(operation: Operation, args: Values, options: CallOptions): [URL, RequestInit] {
    const left = { ...args };
    const take = (name: string) => {
      const value = left[name];
      delete left[name];
      return value;
    };
    const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => {
      if (!left[name] && left[name] !== 0) throw new TypeError(`${operation.path}: ${name} is missing`);
      return encodeURIComponent(String(take(name)));
    });
    const url = new URL(this.url + path);
    for (const name of operation.query) {
      const value = take(name);
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value)); // joins a list by commas
    }
    const headers: Record<string, string> = {};
    if (this.#key) headers["Authorization"] = `Bearer ${this.#key}`;
    if (operation.method !== "GET") headers["Idempotency-Key"] = options.idempotencyKey ?? crypto.randomUUID();
    if (options.delegateFor) headers["X-Delegate-For"] = options.delegateFor;
    if (options.lastEventId) headers["Last-Event-ID"] = options.lastEventId;
    const init: RequestInit = { method: operation.method, headers, redirect: "manual" };
    if (Object.keys(left).length === 0) return [url, init];
    return [url, { ...init, headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(left) }];
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
    const issues: unknown[] = [];
    const read = async (values: Values) => {
      const page = (await this.#send(operation, values, options)) as Values;
      issues.push(...((page["issues"] as unknown[] | undefined) ?? []));
      return page;
    };
    const pages = () => pagesOf(operation, args, read);
    async function* items(): AsyncGenerator<unknown> {
      for await (const page of pages()) yield* page[operation.items ?? ""] as unknown[];
    }
    return { issues, pages, [Symbol.asyncIterator]: items };
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
        if (fault instanceof InvalidAnswer || options.signal?.aborted) throw fault; // else connect again
      }
      await this.#options.sleep(pauseS);
    }
  }
}

/** Read JSON. The numbers of the fields in EXACT become texts first, because JavaScript would round them. */
function parse(call: string, text: string): unknown {
  try {
    return JSON.parse(text.replace(EXACT, '$1"$2"'));
  } catch (fault) {
    throw new InvalidAnswer(`${call}: ${reason(fault)}`);
  }
}
