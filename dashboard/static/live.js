// The events of the server: what is new of some addresses, for as long as a page is shown.
import * as api from "./api.js";

const AGAIN_MS = 3000;

// The fields of a block of lines of a stream of events.
const fieldsOf = (block) => Object.fromEntries(block.split("\n").map((line) => {
  const at = line.indexOf(": ");
  return at > 0 ? [line.slice(0, at), line.slice(at + 2)] : ["", line];
}));

async function follow(addresses, signal, last, take) {
  const reader = (await api.stream("/v1/events", { addresses }, last.id, signal)).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const event of blocks.map(fieldsOf).filter((each) => each.data)) {
      last.id = event.id;
      take(JSON.parse(event.data));
    }
  }
}

const pause = (signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, AGAIN_MS);
  signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
});

// Calls `take` with the statuses of addresses, now and whenever one changes, until `signal` is aborted.
export async function live(addresses, signal, take) {
  const last = { id: "" };
  while (!signal.aborted) {
    try {
      await follow(addresses, signal, last, take);
    } catch (error) {
      if (error.status >= 400 && error.status < 500) return; // it would be refused again
    }
    if (!signal.aborted) await pause(signal);
  }
}
