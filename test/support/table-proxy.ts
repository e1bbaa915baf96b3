import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** One request to the table service, as it was made, with what was answered. */
export interface SeenRequest {
  readonly method: string;
  /** Decoded, without the account: `Things()`, `Things(PartitionKey='p',RowKey='r')`, `Tables`, `$batch`. */
  readonly path: string;
  readonly filter: string | undefined;
  readonly top: number | undefined;
  readonly select: string | undefined;
  /** Of a transaction, that of the whole: 202 even when an operation failed. */
  readonly status: number;
  /** Of the body sent. */
  readonly bytes: number;
  /** Of the body answered. */
  readonly answered: number;
  /** Whose it is, if a functions host sent it: the test's call or the function's name (invocations.mjs). */
  readonly by: string | undefined;
}

/** What goes wrong with one request. */
export type Fault =
  /** 503, with the request not applied. */
  | "ServerBusy"
  /** 409, as for about 40 seconds after a table was deleted. */
  | "TableBeingDeleted"
  /** 412, as if another writer had just changed the row. */
  | "UpdateConditionNotSatisfied"
  /** Like ServerBusy, but said inside the 202 answer to a transaction. */
  | "ServerBusyInside"
  /** 408, 429 and 400 inside the 202 answer to a transaction. */
  | "OperationTimedOutInside"
  | "ThrottledInside"
  | "InvalidInputInside"
  /** The connection is closed and the request not applied. */
  | "LostRequest"
  /** The request is applied and the connection closed before the answer. */
  | "LostAnswer"
  /** The request is applied and the connection closed within the answer: in its body, or in its head where it has none. */
  | "CutAnswer"
  /** The request is applied and its answer ends early, as a whole one would: only its content tells. */
  | "ShortAnswer"
  /** 500 or 503, with the request applied. */
  | "InternalErrorApplied"
  | "ServerBusyApplied";

/** What a fault is chosen by. */
export interface FaultedRequest {
  readonly method: string;
  readonly path: string;
  readonly body: string;
  /** As in SeenRequest. */
  readonly by: string | undefined;
}

export interface TableProxy {
  /** The connection string it was given, with itself as the endpoint. */
  readonly connectionString: string;
  /** Every request so far, oldest first. Empty it to start counting again. */
  readonly requests: SeenRequest[];
  /** The next requests that the matcher picks meet these faults, one each. */
  fail(faults: readonly Fault[], matches?: (seen: FaultedRequest) => boolean): void;
  /** The next request that the matcher picks goes on when this work is done. */
  before(work: () => Promise<unknown>, matches: (seen: FaultedRequest) => boolean): void;
  /** Takes back the faults that nothing has met yet; answers how many they were. */
  heal(): number;
  /** From now on a query answers at most `rows` rows a page, and an empty page with a continuation before each. */
  shortPages(rows: number): void;
  stop(): Promise<void>;
}

/**
 * Stands in front of Azurite's table service to count requests and to do what Azure does and Azurite does not. The Host
 * header is passed on as it came: the signature covers the path only, and the addresses inside a transaction must be this
 * proxy's.
 *
 * @param service - Which of the account's services it stands in front of.
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

    // A continuation that this proxy made up is the place where its empty page stood: from there it asks for the real one.
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
  // A connection that is lost on one side, as when a host is killed, is lost on the other.
  const server = createServer((incoming, answer) => {
    handle(incoming, answer).catch(() => answer.destroy());
  });

  // Longer than any pause between two requests: no connection ends just as it is used again.
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

/** Errors as the service words them. https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2 */
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
