import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A request to the table service, with data of the response. */
export interface SeenRequest {
  readonly method: string;
  /** Decoded and without the account: `Things()`, `Things(PartitionKey='p',RowKey='r')`, `Tables`, `$batch`. */
  readonly path: string;
  readonly filter: string | undefined;
  readonly top: number | undefined;
  readonly select: string | undefined;
  /** Status of the response. For a transaction the status of the whole: 202 even if an operation failed. */
  readonly status: number;
  /** Bytes of the request body. */
  readonly bytes: number;
  /** Bytes of the response body. */
  readonly answered: number;
  /** The test's call or the function that caused the request, if a functions host sent it (invocations.mjs). */
  readonly by: string | undefined;
}

/** A fault that affects one request. */
export type Fault =
  /** 503. The request is not applied. */
  | "ServerBusy"
  /** 409, as for about 40 seconds after a table was deleted. */
  | "TableBeingDeleted"
  /** 412, as if another writer had just changed the row. */
  | "UpdateConditionNotSatisfied"
  /** Like ServerBusy, but inside the 202 response to a transaction. */
  | "ServerBusyInside"
  /** 408, 429 and 400 inside the 202 response to a transaction. */
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
  /** The request is applied. The response ends early but with a valid length, so that only its content shows it. */
  | "ShortAnswer"
  /** 500 or 503. The request is applied. */
  | "InternalErrorApplied"
  | "ServerBusyApplied";

/** Selects requests. */
export interface FaultedRequest {
  readonly method: string;
  readonly path: string;
  readonly body: string;
  /** Matches `SeenRequest`. */
  readonly by: string | undefined;
}

export interface TableProxy {
  /** The given connection string with the proxy as the endpoint. */
  readonly connectionString: string;
  /** All requests, oldest first. Empty the list to restart counting. */
  readonly requests: SeenRequest[];
  /** The next matching requests get these faults, one each. */
  fail(faults: readonly Fault[], matches?: (seen: FaultedRequest) => boolean): void;
  /** The next matching request continues after this work. */
  before(work: () => Promise<unknown>, matches: (seen: FaultedRequest) => boolean): void;
  /** Removes faults that no request has met yet, and returns their number. */
  heal(): number;
  /**
   * From now on, a query returns at most `rows` rows per page, and an empty page with a continuation token before each page.
   */
  shortPages(rows: number): void;
  stop(): Promise<void>;
}

/**
 * Starts a proxy in front of Azurite's table service that counts requests and simulates behavior of Azure that Azurite lacks.
 * The Host header is passed on unchanged: the signature covers only the path, and the addresses in a transaction must be those
 * of the proxy.
 *
 * @param service - The service of the storage account.
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

  const held: { work: () => Promise<unknown>; matches: (seen: FaultedRequest) => boolean }[] = [];

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
    const note = (status: number, answered = 0) => requests.push({ ...seen, status, answered });

    const holding = held.findIndex(({ matches }) => matches({ method, path, body, by }));
    if (holding >= 0) await held.splice(holding, 1)[0]!.work();
    const next = faults.findIndex(({ matches }) => matches({ method, path, body, by }));
    const fault = next < 0 ? undefined : faults.splice(next, 1)[0]!.fault;
    if (fault === "LostRequest") {
      note(0);
      incoming.socket.destroy();
      return;
    }
    if (fault === "ServerBusy") return refuse(answer, note, 503, fault);
    if (fault === "TableBeingDeleted") return refuse(answer, note, 409, fault);
    if (fault === "UpdateConditionNotSatisfied") return refuse(answer, note, 412, fault);
    const inside = INSIDE[fault ?? ""];
    if (inside) {
      note(202);
      answer.writeHead(202, { "content-type": "multipart/mixed; boundary=batchresponse_x" });
      answer.end(refusedInside(inside.status, inside.code));
      return;
    }

    // A continuation token of this proxy marks the position of an empty page. The proxy requests the real page from there.
    const place = url.searchParams.get("NextRowKey");
    if (rowsPerPage !== undefined && method === "GET" && path.endsWith("()")) {
      if (!place?.startsWith(emptyPageMark)) {
        note(200);
        answer.writeHead(200, {
          "content-type": "application/json;odata=minimalmetadata",
          "x-ms-continuation-nextpartitionkey": url.searchParams.get("NextPartitionKey") ?? emptyPageMark,
          "x-ms-continuation-nextrowkey": emptyPageMark + (place ?? ""),
        });
        answer.end(JSON.stringify({ value: [] }));
        return;
      }
      url.searchParams.set("$top", String(Math.min(rowsPerPage, seen.top ?? 1000)));
      if (place === emptyPageMark) {
        url.searchParams.delete("NextPartitionKey");
        url.searchParams.delete("NextRowKey");
      } else url.searchParams.set("NextRowKey", place.slice(emptyPageMark.length));
    }

    const applied = await forward(incoming, url, body);
    note(applied.status, Buffer.byteLength(applied.body));
    if (fault === "LostAnswer") {
      incoming.socket.destroy();
      return;
    }
    if (fault === "InternalErrorApplied") return refuse(answer, () => {}, 500, "InternalError");
    if (fault === "ServerBusyApplied") return refuse(answer, () => {}, 503, "ServerBusy");
    if (fault === "CutAnswer") return cut(incoming, answer, applied);
    if (fault === "ShortAnswer") {
      const { "content-length": _, ...headers } = applied.headers;
      answer.writeHead(applied.status, headers);
      answer.end(applied.body.slice(0, applied.body.length / 2));
      return;
    }
    answer.writeHead(applied.status, applied.headers);
    answer.end(applied.body);
  };
  // A connection that closes on one side, for example when a host is killed, closes on the other side too.
  const server = createServer((incoming, answer) => {
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
      held.push({ work, matches });
    },
    heal: () => faults.splice(0).length,
    fail: (wanted, matches = () => true) => faults.push(...wanted.map((fault) => ({ fault, matches }))),
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

const emptyPageMark = "after-an-empty-page:";

interface Answered {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

function cut(incoming: IncomingMessage, answer: ServerResponse, { status, headers, body }: Answered): void {
  const close = () => incoming.socket.destroy();
  if (body === "") {
    incoming.socket.write(`HTTP/1.1 ${status} No Con`, close);
    return;
  }
  answer.writeHead(status, { ...headers, "content-length": Buffer.byteLength(body) });
  answer.write(body.slice(0, body.length / 2), close);
}

function forward(incoming: IncomingMessage, url: URL, body: string) {
  return new Promise<Answered>((resolve, reject) => {
    const { method, headers } = incoming;
    const forwarded = request(url, { method, headers }, (response) => {
      const { "transfer-encoding": _, ...kept } = response.headers;
      text(response).then(
        (answered) => resolve({ status: response.statusCode ?? 500, headers: kept, body: answered }),
        reject,
      );
    });
    forwarded.once("error", reject);
    forwarded.end(body);
  });
}

/** Error texts of the service: https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2 */
const problem = (code: string, prefix = "") =>
  JSON.stringify({ "odata.error": { code, message: { lang: "en-US", value: `${prefix}Said by the proxy.` } } });

function refuse(answer: ServerResponse, note: (status: number) => void, status: number, code: string): void {
  note(status);
  answer.writeHead(status, { "content-type": "application/json;odata=minimalmetadata", "x-ms-error-code": code });
  answer.end(problem(code));
}

const INSIDE: Record<string, { status: number; code: string } | undefined> = {
  ServerBusyInside: { status: 503, code: "ServerBusy" },
  OperationTimedOutInside: { status: 408, code: "OperationTimedOut" },
  ThrottledInside: { status: 429, code: "TooManyRequests" },
  InvalidInputInside: { status: 400, code: "InvalidInput" },
};

const refusedInside = (status: number, code: string): string =>
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
    problem(code, "0:"),
    "--changesetresponse_x--",
    "--batchresponse_x--",
    "",
  ].join("\r\n");
