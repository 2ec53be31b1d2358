/** Bodies that are read in parts. */

import { ConnectionFailed } from "./errors.js";

/** Aborts a request whose server is silent for too long. */
export class Silence {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  readonly signal: AbortSignal;

  constructor(readonly seconds: number, readonly caller?: AbortSignal) {
    this.signal = caller ? AbortSignal.any([this.#controller.signal, caller]) : this.#controller.signal;
    this.#begin();
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  #begin(): void {
    this.pause();
    const abort = () => this.#controller.abort(new Error(`the server was silent for ${this.seconds} s`));
    this.#timer = setTimeout(abort, this.seconds * 1000);
  }

  /** Return a body whose chunks are waited for no longer than that. The caller's signal ends it with its reason. */
  watch(body: ReadableStream<Uint8Array> | null): ReadableStream<Uint8Array> | null {
    if (!body) return null;
    const reader = body.getReader();
    return new ReadableStream({
      pull: async (controller) => {
        this.#begin();
        try {
          const { done, value } = await reader.read();
          if (done) controller.close();
          else controller.enqueue(value);
        } catch (fault) {
          const cut = new ConnectionFailed(`the answer was cut: ${reason(fault)}`);
          controller.error(this.caller?.aborted ? this.caller.reason : cut);
        } finally {
          this.pause();
        }
      },
      cancel: (why) => reader.cancel(why),
    });
  }
}

/** Yield the fields of each whole event of a stream. */
export async function* blocks(response: Response): AsyncGenerator<Record<string, string>> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n\r?\n/);
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const fields: Record<string, string> = {};
      for (const line of part.split(/\r?\n/)) {
        const [, name, value = ""] = /^(\w+): ?([^\r\n]*)$/.exec(line) ?? [];
        if (name) fields[name] = name in fields ? `${fields[name]}\n${value}` : value;
      }
      yield fields;
    }
  }
}

/** What went wrong on a connection. */
export function reason(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault);
  return fault.cause instanceof Error ? `${fault.message}: ${fault.cause.message}` : fault.message;
}
