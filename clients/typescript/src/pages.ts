/** Lists over their pages. */

import { InvalidAnswer } from "./errors.js";

/** How a call is sent, and where a page of it has its position and its items. */
export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly query: readonly string[];
  readonly position?: "offset" | "page" | "cursor";
  readonly items?: string;
  readonly limit?: number;
  readonly body?: true;
  readonly media?: "events" | "file";
}

export type Values = Record<string, unknown>;

/** Yield the pages of a list from the position in `args` on. */
export async function* pagesOf(
  operation: Operation,
  args: Values,
  read: (values: Values) => Promise<Values>,
): AsyncGenerator<Values> {
  const position = operation.position ?? "offset";
  const start = { offset: { offset: 0 }, page: { page: 1 }, cursor: {} }[position];
  for (let values: Values = { limit: operation.limit, ...start, ...args }; ; ) {
    const page = await read(values);
    yield page;
    const next = nextOf(operation, values, page);
    if (next === undefined) return;
    if (next === values[position]) throw new InvalidAnswer(`the page after ${String(next)} is the same page`);
    values = { ...values, [position]: next };
  }
}

/** The position of the next page; undefined after the last one. */
function nextOf(operation: Operation, values: Values, page: Values): unknown {
  if (operation.position === "cursor") return page["cursor"] ?? undefined;
  if (operation.position === "page") {
    return (page["pagination"] as Values)["hasMore"] ? Number(values["page"]) + 1 : undefined;
  }
  const count = (page[operation.items ?? ""] as unknown[]).length;
  const end = Number(values["offset"]) + count;
  const isLast = "totalRows" in page ? end >= Number(page["totalRows"]) : count < Number(values["limit"]);
  return isLast || count === 0 ? undefined : end;
}
