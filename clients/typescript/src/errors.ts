/** Errors of the client. None of them holds the API key. */

/** A call that failed. */
export class ChainfolioError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** The server was not reached, did not answer in time, or the connection broke. */
export class ConnectionFailed extends ChainfolioError {}

/** The server's answer does not fit the description of the API of this version. */
export class InvalidAnswer extends ChainfolioError {}

/** A refusal or failure that the server answered. */
export class ApiError extends ChainfolioError {
  /** A stable name for programs, such as `BUNDLE_NAME_TAKEN`; may be empty. */
  readonly code: string;
  /** The whole answer: an object of JSON, else empty. */
  readonly body: Record<string, unknown>;
  /** The id of the request in the server's log; may be empty. */
  readonly requestId: string;
  /** Seconds after which a retry may succeed; undefined if the server does not say. */
  readonly retryAfterS: number | undefined;

  constructor(readonly status: number, headers: Headers, text: string) {
    const body = objectOf(text);
    const error = body["error"];
    const isObject = typeof error === "object" && error !== null;
    const detail = isObject ? (error as Record<string, unknown>) : { code: error, ...body };
    const code = String(detail["code"] ?? "");
    const message = String(detail["message"] ?? (code || text.slice(0, 200)));
    super(code ? `${status} ${code}: ${message}` : `${status}: ${message}`);
    this.code = code;
    this.body = body;
    this.requestId = headers.get("X-Request-Id") ?? "";
    this.retryAfterS = seconds(headers.get("Retry-After") ?? "");
  }
}

function objectOf(text: string): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(text);
    return typeof document === "object" && document !== null && !Array.isArray(document)
      ? (document as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}

/** The seconds of a `Retry-After`: a number, or a date. */
function seconds(text: string): number | undefined {
  if (/^\d+$/.test(text)) return Number(text);
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? undefined : Math.max(0, (moment - Date.now()) / 1000);
}
