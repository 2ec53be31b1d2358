/** Types of the calls, made of the generated ones. */

import type { OPERATIONS } from "./operations.js";
import type { components, operations } from "./schema.js";

export type Name = keyof typeof OPERATIONS;
type Table = typeof OPERATIONS;
type Part<P, K extends string> = P extends { [each in K]?: infer T }
  ? [T] extends [undefined]
    ? unknown
    : NonNullable<T>
  : unknown;
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : unknown;
type Parameters<K extends Name> = operations[K]["parameters"];
type All<K extends Name> = Part<Parameters<K>, "path"> & Part<Parameters<K>, "query"> & Body<operations[K]>;
type Positions = "limit" | "offset" | "page" | "cursor";

/** Parameters and fields of the body of a call, by the names of the API. A list has its own first page and limit. */
export type Arguments<K extends Name> = Table[K] extends { position: string }
  ? Omit<All<K>, Positions> & Partial<Pick<All<K>, Extract<keyof All<K>, Positions>>>
  : All<K>;

/** The document of a successful answer; undefined if it has no body. */
export type Answer<K extends Name> = operations[K]["responses"] extends {
  200: { content: { "application/json": infer T } };
}
  ? T
  : undefined;

type Items<K extends Name> = Table[K] extends { items: infer I extends string }
  ? Answer<K> extends { [each in I]: (infer T)[] }
    ? T
    : never
  : never;

/** A list over all its pages, which are read as they are needed; `pages()` has whole pages. */
export interface Pages<Page, Item> extends AsyncIterable<Item> {
  /** What the server could not read, as the pages say that the last iteration has read so far. */
  readonly issues: components["schemas"]["IssueDocument"][];
  pages(): AsyncIterable<Page>;
}

/** An event of a stream, with its data read. */
export interface Event<T> {
  id: string;
  event: string;
  data: T;
}

type Result<K extends Name> = Table[K] extends { position: string }
  ? Pages<Answer<K>, Items<K>>
  : Table[K] extends { media: "events"; data: infer D extends Name }
    ? AsyncIterable<Event<Answer<D>>>
    : Promise<Table[K] extends { media: "file" } ? Response : Answer<K>>;

/** What a single call may have besides its arguments. */
export interface CallOptions {
  /** Under which a change is made once, even if it is sent twice; by default a random one. */
  idempotencyKey?: string;
  /** The account that the call is about, if it delegated to yours. */
  delegateFor?: string;
  /** The last event that you have. */
  lastEventId?: string;
  /** Ends the call when it is aborted. */
  signal?: AbortSignal;
}

/** A method for each operation of the API, by its `operationId` in camel case. */
export type Calls = {
  [K in Name]: object extends Arguments<K>
    ? (args?: Arguments<K>, options?: CallOptions) => Result<K>
    : (args: Arguments<K>, options?: CallOptions) => Result<K>;
};
