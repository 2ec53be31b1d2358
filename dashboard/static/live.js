// The events of the server: what is new of some addresses, for as long as a page is shown.
import * as api from "./api.js";

const PAUSE_MS = 2000, MAX_PAUSE_MS = 120_000;
const QUIET_MS = 60_000; // four comments of a quiet stream: the connection is gone

// The fields of a block of lines of a stream of events.
const fieldsOf = (block) => Object.fromEntries(block.split("\n").map((line) => {
  const at = line.indexOf(": ");
  return at > 0 ? [line.slice(0, at), line.slice(at + 2)] : ["", line];
}));

async function follow(addresses, stop, last, take) {
  const reader = (await api.stream("/v1/events", { addresses }, last.id, stop.signal)).getReader();
  let text = "", timer;
  try {
    for (;;) {
      timer = setTimeout(() => stop.abort(), QUIET_MS);
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      last.failures = 0;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const event of blocks.map(fieldsOf).filter((each) => each.data)) {
        last.id = event.id;
        take(JSON.parse(event.data));
      }
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => null);
  }
}

// Resolves once `target` has the event, or once `signal` is aborted.
const once = (target, name, signal) => new Promise((resolve) => {
  target.addEventListener(name, resolve, { once: true, signal });
  signal.addEventListener("abort", resolve, { once: true });
});

const pause = (signal, ms) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
});

// A hidden page has no stream: a browser has few connections to a server, for all its pages together.
async function followVisible(addresses, signal, last, take) {
  const stop = new AbortController();
  const leave = () => stop.abort(), hide = () => document.hidden && stop.abort();
  signal.addEventListener("abort", leave, { once: true });
  document.addEventListener("visibilitychange", hide);
  try {
    await follow(addresses, stop, last, take);
  } finally {
    signal.removeEventListener("abort", leave);
    document.removeEventListener("visibilitychange", hide);
  }
}

// Calls `take` with the statuses of addresses, now and whenever one changes, until `signal` is aborted.
export async function live(addresses, signal, take) {
  const last = { id: "", failures: 0 };
  while (!signal.aborted) {
    if (document.hidden) {
      await once(document, "visibilitychange", signal);
      continue;
    }
    try {
      await followVisible(addresses, signal, last, take);
    } catch (error) {
      const isFinal = error.status >= 400 && error.status < 500 && ![408, 429].includes(error.status);
      if (isFinal) return;
    }
    const wait = Math.min(PAUSE_MS * 2 ** last.failures++, MAX_PAUSE_MS);
    await pause(signal, wait * (0.5 + Math.random()));
  }
}
