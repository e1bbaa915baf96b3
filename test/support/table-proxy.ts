import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A request that the proxy forwarded or answered, with data of the response. */
export interface SeenRequest {
  readonly method: string;
  /** Decoded and without the account, for example `Things()`, `Things(PartitionKey='p',RowKey='r')`, `Tables` or `$batch`. */
  readonly path: string;
  readonly filter: string | undefined;
  readonly top: number | undefined;
  readonly select: string | undefined;
  /**
   * Status of the response, or 0 if the request was lost. A transaction has the status 202 even if one of its operations
   * failed.
   */
  readonly status: number;
  /** Bytes of the request body. */
  readonly bytes: number;
  /** Bytes of the response body. */
  readonly answered: number;
  /**
   * The cause of the request, if a functions host sent it: the call of a test, such as `call 7`, or the name of a function
   * (invocations.mjs).
   */
  readonly by: string | undefined;
}

/** A fault that affects one request. */
export type Fault =
  /** 503. The request is not applied. */
  | "ServerBusy"
  /** 409, as Azure responds for about 40 seconds after a table was deleted. */
  | "TableBeingDeleted"
  /** 412, as if another writer had just changed the row. */
  | "UpdateConditionNotSatisfied"
  /** Like ServerBusy, but inside the 202 response to a transaction. */
  | "ServerBusyInside"
  /** The next three: 408, 429 and 400 inside the 202 response to a transaction. */
  | "OperationTimedOutInside"
  | "ThrottledInside"
  | "InvalidInputInside"
  /** The connection is closed. The request is not applied. */
  | "LostRequest"
  /** The request is applied. The connection is closed before the response. */
  | "LostAnswer"
  /**
   * The request is applied. The connection is closed within the response body, or within the head of a response without body.
   */
  | "CutAnswer"
  /** The request is applied. The response contains only half of the body, with a matching length. */
  | "ShortAnswer"
  /** The last two: 500 and 503. The request is applied nevertheless. */
  | "InternalErrorApplied"
  | "ServerBusyApplied";

/** A request as the conditions of `fail` and `before` see it. */
export interface FaultedRequest {
  readonly method: string;
  readonly path: string;
  readonly body: string;
  /** The cause of the request, as in `SeenRequest`. */
  readonly by: string | undefined;
}

export interface TableProxy {
  /** The given connection string with the proxy as the endpoint. */
  readonly connectionString: string;
  /** All requests, oldest first. Empty the list to restart counting. */
  readonly requests: SeenRequest[];
  /** Adds faults. Each fault affects the next matching request that no earlier fault affects. */
  fail(faults: readonly Fault[], matches?: (seen: FaultedRequest) => boolean): void;
  /** Delays the next matching request until this work has finished. */
  before(work: () => Promise<unknown>, matches: (seen: FaultedRequest) => boolean): void;
  /** Removes faults that have affected no request yet, and returns their number. */
  removeFaults(): number;
  /**
   * Makes queries return at most `rows` rows per page, and an empty page with a continuation token before each page. Azure can
   * return such pages at any time, and Azurite does not.
   */
  shortPages(rows: number): void;
  stop(): Promise<void>;
}

/**
 * Starts a proxy in front of Azurite's table service that counts requests and simulates behavior of Azure that Azurite lacks.
 * The Host header is forwarded unchanged: the signature covers only the path, and the addresses in a transaction must be those
 * of the proxy.
 *
 * @param service - The service of the storage account that the proxy forwards to. `filter`, `top` and `select` of the recorded
 * requests are only meaningful for tables.
 */
export async function startTableProxy(
  connectionString: string,
  service: "Table" | "Queue" = "Table",
): Promise<TableProxy> {
  const endpoint = new URL(new RegExp(`${service}Endpoint=([^;]+)`).exec(connectionString)?.[1] ?? "");
  const account = endpoint.pathname.split("/")[1]!;
  const requests: SeenRequest[] = [];
  const faults: { fault: Fault; matches: (seen: FaultedRequest) => boolean }[] = [];
  let rowsPerPage: number | undefined;

  const delays: { work: () => Promise<unknown>; matches: (seen: FaultedRequest) => boolean }[] = [];

  const handle = async (incoming: IncomingMessage, answer: ServerResponse) => {
    const url = new URL(incoming.url ?? "/", endpoint);
    const body = await text(incoming);
    const method = incoming.method ?? "GET";
    const path = decodeURIComponent(url.pathname).replace(`/${account}/`, "");
    const top = url.searchParams.get("$top");
    const by = incoming.headers["x-test-by"] as string | undefined;
    const seen = {
      method,
      path,
      filter: url.searchParams.get("$filter") ?? undefined,
      top: top === null ? undefined : Number(top),
      select: url.searchParams.get("$select") ?? undefined,
      bytes: Buffer.byteLength(body),
      by,
    };
    const record = (status: number, answered = 0) => requests.push({ ...seen, status, answered });

    const delayIndex = delays.findIndex(({ matches }) => matches({ method, path, body, by }));
    if (delayIndex >= 0) await delays.splice(delayIndex, 1)[0]!.work();
    const faultIndex = faults.findIndex(({ matches }) => matches({ method, path, body, by }));
    const fault = faultIndex < 0 ? undefined : faults.splice(faultIndex, 1)[0]!.fault;
    if (fault === "LostRequest") {
      record(0);
      incoming.socket.destroy();
      return;
    }
    if (fault === "ServerBusy") return respondWithError(answer, record, 503, fault);
    if (fault === "TableBeingDeleted") return respondWithError(answer, record, 409, fault);
    if (fault === "UpdateConditionNotSatisfied") return respondWithError(answer, record, 412, fault);
    const transactionError = TRANSACTION_ERRORS[fault ?? ""];
    if (transactionError) {
      record(202);
      answer.writeHead(202, { "content-type": "multipart/mixed; boundary=batchresponse_x" });
      answer.end(failedTransaction(transactionError.status, transactionError.code));
      return;
    }

    // With short pages, a query first gets an empty page, whose continuation token is a mark followed by Azurite's own token.
    // The query that sends such a token gets the real page from Azurite.
    const continuationToken = url.searchParams.get("NextRowKey");
    if (rowsPerPage !== undefined && method === "GET" && path.endsWith("()")) {
      if (!continuationToken?.startsWith(EMPTY_PAGE_MARK)) {
        record(200);
        answer.writeHead(200, {
          "content-type": "application/json;odata=minimalmetadata",
          "x-ms-continuation-nextpartitionkey": url.searchParams.get("NextPartitionKey") ?? EMPTY_PAGE_MARK,
          "x-ms-continuation-nextrowkey": EMPTY_PAGE_MARK + (continuationToken ?? ""),
        });
        answer.end(JSON.stringify({ value: [] }));
        return;
      }
      url.searchParams.set("$top", String(Math.min(rowsPerPage, seen.top ?? 1000)));
      if (continuationToken === EMPTY_PAGE_MARK) {
        url.searchParams.delete("NextPartitionKey");
        url.searchParams.delete("NextRowKey");
      } else url.searchParams.set("NextRowKey", continuationToken.slice(EMPTY_PAGE_MARK.length));
    }

    const applied = await forward(incoming, url, body);
    record(applied.status, Buffer.byteLength(applied.body));
    if (fault === "LostAnswer") {
      incoming.socket.destroy();
      return;
    }
    if (fault === "InternalErrorApplied") return respondWithError(answer, () => {}, 500, "InternalError");
    if (fault === "ServerBusyApplied") return respondWithError(answer, () => {}, 503, "ServerBusy");
    if (fault === "CutAnswer") return closeWithinResponse(incoming, answer, applied);
    if (fault === "ShortAnswer") {
      const { "content-length": _, ...headers } = applied.headers;
      answer.writeHead(applied.status, headers);
      answer.end(applied.body.slice(0, applied.body.length / 2));
      return;
    }
    answer.writeHead(applied.status, applied.headers);
    answer.end(applied.body);
  };
  const server = createServer((incoming, answer) => {
    // A request that breaks off on one side, for example when a host is killed, breaks off on the other side too.
    handle(incoming, answer).catch(() => answer.destroy());
  });

  // Longer than any pause between two requests, so that no idle connection closes while a client reuses it.
  server.keepAliveTimeout = 120_000;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    connectionString: connectionString.replace(endpoint.origin, `http://127.0.0.1:${port}`),
    requests,
    before(work, matches) {
      delays.push({ work, matches });
    },
    removeFaults: () => faults.splice(0).length,
    fail: (newFaults, matches = () => true) => faults.push(...newFaults.map((fault) => ({ fault, matches }))),
    shortPages: (rows) => {
      rowsPerPage = rows;
    },
    stop: () =>
      new Promise((resolve, reject) => {
        server.close((error) => (error ? reject(error) : resolve()));
        server.closeAllConnections();
      }),
  };
}

const EMPTY_PAGE_MARK = "after-an-empty-page:";

interface AppliedResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** Closes the connection after half of the body, or within the status line of a response without a body. */
function closeWithinResponse(
  incoming: IncomingMessage,
  answer: ServerResponse,
  { status, headers, body }: AppliedResponse,
): void {
  const close = () => incoming.socket.destroy();
  if (body === "") {
    // The start of "No Content".
    incoming.socket.write(`HTTP/1.1 ${status} No Con`, close);
    return;
  }
  answer.writeHead(status, { ...headers, "content-length": Buffer.byteLength(body) });
  answer.write(body.slice(0, body.length / 2), close);
}

function forward(incoming: IncomingMessage, url: URL, body: string) {
  return new Promise<AppliedResponse>((resolve, reject) => {
    const { method, headers } = incoming;
    const forwarded = request(url, { method, headers }, (response) => {
      // The proxy sends the body with a length, so it must not copy this header.
      const { "transfer-encoding": _, ...copiedHeaders } = response.headers;
      text(response).then(
        (responseBody) => resolve({ status: response.statusCode ?? 500, headers: copiedHeaders, body: responseBody }),
        reject,
      );
    });
    forwarded.once("error", reject);
    forwarded.end(body);
  });
}

/** An error body as in https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2, with another message. */
const errorBody = (code: string, prefix = "") =>
  JSON.stringify({ "odata.error": { code, message: { lang: "en-US", value: `${prefix}Said by the proxy.` } } });

function respondWithError(
  answer: ServerResponse,
  record: (status: number) => void,
  status: number,
  code: string,
): void {
  record(status);
  answer.writeHead(status, { "content-type": "application/json;odata=minimalmetadata", "x-ms-error-code": code });
  answer.end(errorBody(code));
}

/** The faults whose error is inside of the 202 response to a transaction. */
const TRANSACTION_ERRORS: Record<string, { status: number; code: string } | undefined> = {
  ServerBusyInside: { status: 503, code: "ServerBusy" },
  OperationTimedOutInside: { status: 408, code: "OperationTimedOut" },
  ThrottledInside: { status: 429, code: "TooManyRequests" },
  InvalidInputInside: { status: 400, code: "InvalidInput" },
};

/** The response to a transaction whose first operation failed. */
const failedTransaction = (status: number, code: string): string =>
  [
    "--batchresponse_x",
    "Content-Type: multipart/mixed; boundary=changesetresponse_x",
    "",
    "--changesetresponse_x",
    "Content-Type: application/http",
    "Content-Transfer-Encoding: binary",
    "",
    `HTTP/1.1 ${status} Refused`,
    "Content-Type: application/json;odata=minimalmetadata;charset=utf-8",
    "",
    // The index of the failed operation precedes the message.
    errorBody(code, "0:"),
    "--changesetresponse_x--",
    "--batchresponse_x--",
    "",
  ].join("\r\n");
