// Makes one call of the TypeScript client for each line of JSON that comes, and answers with one line.

import { createInterface } from "node:readline";
import { inspect } from "node:util";
import * as chainfolio from "chainfolio-client";

async function resultOf(call, take, each) {
  if (call[Symbol.asyncIterator] === undefined) {
    const answer = await call;
    if (!(answer instanceof Response)) return answer;
    return { type: answer.headers.get("Content-Type"), text: await answer.text() };
  }
  const items = [];
  for await (const item of call) {
    items.push(item);
    each();
    if (items.length === take) break;
  }
  return call.issues?.length ? { items, issues: call.issues } : items;
}

async function answered({ url, key, name, args, options, limits, take, abort }) {
  const waits = [];
  const ending = new AbortController();
  const end = (moment) => abort === moment && ending.abort(new Error("enough"));
  const sleep = async (seconds) => {
    waits.push(seconds);
    end("wait");
    if (abort) await new Promise(() => {});
  };
  try {
    const more = abort ? { ...options, signal: ending.signal } : options;
    const client = chainfolio.createClient(url, key, { ...limits, sleep });
    return { result: await resultOf(client[name](args, more), take, () => end("item")), waits };
  } catch (error) {
    const { name: kind, message, status, code, body, requestId, retryAfterS } = error;
    return { error: { kind, message, status, code, body, requestId, retryAfterS, shown: inspect(error) }, waits };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answered(JSON.parse(line))));
}
