/**
 * Baseline of the benchmark `lean` (lean.ts): a child process that sends the same requests as the service's scan, with the same
 * concurrency, but does nothing else. It uses no SDK, only Node.js and p-map. The parent sends a `BareWork` message, waits for
 * the `BareDone` reply, and then sends the next one.
 */
import { createHmac, randomUUID } from "node:crypto";
import http from "node:http";
import https from "node:https";
import pMap from "p-map";

export type BareWork =
  /** Reads the lists of these vaults (`delta`), and also the details of their keys and certificates (`full`). */
  | { kind: "delta" | "full"; vaults: string[] }
  /** Writes rows as the service wrote them, without their keys. */
  | { kind: "write"; connectionString: string; rows: object[] };

/** Reply to a `BareWork`: the number of requests that the work needed, and its duration. A process that fails exits with 1. */
export interface BareDone {
  calls: number;
  seconds: number;
}

const API = "api-version=2025-07-01";
// The same concurrency as in the service.
const VAULTS_AT_ONCE = 10;
/** Concurrent reads of the details of one type (keys or certificates) in one vault. */
const DETAILS_AT_ONCE = 8;
const CONNECTIONS_PER_HOST = 8;

/** Item of a vault's list. Keys have a `kid`, secrets and certificates an `id`. A managed key belongs to a certificate. */
interface ListItem {
  id?: string;
  kid?: string;
  managed?: boolean;
}

/** Reads the vaults like a delta or a full scan. Returns the number of calls. */
async function readVaults(kind: "delta" | "full", vaults: string[]): Promise<number> {
  const token = await fetchToken(new URL(vaults[0]!).hostname.split(".").slice(1).join("."));
  const agent = new https.Agent({ keepAlive: true, maxSockets: CONNECTIONS_PER_HOST });
  let calls = 0;
  const get = (url: string) =>
    new Promise<{ value: ListItem[]; nextLink?: string }>((resolve, reject) => {
      calls++;
      const headers = { authorization: `Bearer ${token}` };
      const readBody = (response: http.IncomingMessage) => {
        let body = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => {
          body += part;
        });
        response.on("end", () => resolve(JSON.parse(body)));
      };
      https.get(url, { agent, headers }, readBody).on("error", reject);
    });

  async function readList(vault: string, list: "secrets" | "keys" | "certificates"): Promise<void> {
    const items: ListItem[] = [];
    for (let url: string | undefined = `${vault}/${list}?${API}`; url; ) {
      const page = await get(url);
      items.push(...page.value);
      url = page.nextLink;
    }
    if (kind === "delta" || list === "secrets") return;
    const unmanagedIds = items.filter(({ managed }) => !managed).map(({ id, kid }) => kid ?? id!);
    const detailUrls = (id: string) =>
      list === "keys" ? [`${id}?${API}`, `${id}/rotationpolicy?${API}`] : [`${id}?${API}`];
    await pMap(unmanagedIds, (id) => Promise.all(detailUrls(id).map(get)), { concurrency: DETAILS_AT_ONCE });
  }

  const lists = ["secrets", "keys", "certificates"] as const;
  await pMap(vaults, (vault) => Promise.all(lists.map((list) => readList(vault, list))), {
    concurrency: VAULTS_AT_ONCE,
  });
  agent.destroy();
  return calls;
}

/** Returns an access token of the managed identity for Key Vault, whose vaults have addresses with this domain. */
async function fetchToken(domain: string): Promise<string> {
  const { IDENTITY_ENDPOINT, IDENTITY_HEADER } = process.env;
  const url = `${IDENTITY_ENDPOINT}?api-version=2019-08-01&resource=${encodeURIComponent(`https://${domain}`)}`;
  const response = await fetch(url, { headers: { "x-identity-header": IDENTITY_HEADER! } });
  return ((await response.json()) as { access_token: string }).access_token;
}

/** Maximum of Azure Table storage. */
const ROWS_PER_TRANSACTION = 100;
/** Two copies in three partitions: the service stores each asset in six rows. The names have no meaning here. */
const COPIES_PER_PARTITION = 2;
const PARTITIONS = ["all", "sub", "vault"];

/**
 * Writes each row six times, as the service does. Builds the requests of Azure Table storage by hand: shared key signature and
 * multipart batches, as many at the same time as vaults are read. Returns the number of requests.
 */
async function writeRows(connectionString: string, rows: object[]): Promise<number> {
  const parts = Object.fromEntries(connectionString.split(";").map((part) => part.split(/=(.*)/s).slice(0, 2)));
  const { AccountName: account, AccountKey: key, TableEndpoint: endpoint } = parts as Record<string, string>;
  const agent = new http.Agent({ keepAlive: true, maxSockets: VAULTS_AT_ONCE });
  let calls = 0;
  const post = (path: string, type: string, body: string) =>
    new Promise<void>((resolve, reject) => {
      calls++;
      const url = new URL(`${endpoint}/${path}`);
      const date = new Date().toUTCString();
      const stringToSign = `${date}\n/${account}${url.pathname}`;
      const signature = createHmac("sha256", Buffer.from(key!, "base64")).update(stringToSign).digest("base64");
      const headers = {
        "x-ms-date": date,
        "x-ms-version": "2019-02-02",
        authorization: `SharedKeyLite ${account}:${signature}`,
        accept: "application/json",
        "content-type": type,
        "content-length": Buffer.byteLength(body),
        dataserviceversion: "3.0",
      };
      const request = http.request(url, { method: "POST", agent, headers }, (response) => {
        response.resume();
        // A transaction whose rows were rejected also has status 202. This baseline does not read its body.
        response.on("end", () =>
          (response.statusCode ?? 500) < 400 ? resolve() : reject(new Error(`${response.statusCode}`)),
        );
      });
      request.on("error", reject);
      request.end(body);
    });
  const table = `Bare${randomUUID().replaceAll("-", "")}`;
  await post("Tables", "application/json", JSON.stringify({ TableName: table }));
  const batches: string[][] = [];
  for (const partition of PARTITIONS) {
    const batch: string[] = [];
    for (const [index, row] of rows.entries()) {
      for (let copy = 0; copy < COPIES_PER_PARTITION; copy++) {
        const RowKey = `${copy}!${index}`;
        batch.push(
          `Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nPUT ${endpoint}/${table}(PartitionKey='${partition}',RowKey='${RowKey}') HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n\r\n${JSON.stringify({ PartitionKey: partition, RowKey, ...row })}`,
        );
        if (batch.length === ROWS_PER_TRANSACTION) batches.push(batch.splice(0));
      }
    }
    if (batch.length > 0) batches.push(batch);
  }
  await pMap(
    batches,
    (batch) => {
      const [batchBoundary, changesetBoundary] = [`batch_${randomUUID()}`, `changeset_${randomUUID()}`];
      const changes = batch.map((part) => `--${changesetBoundary}\r\n${part}\r\n`).join("");
      const body = `--${batchBoundary}\r\nContent-Type: multipart/mixed; boundary=${changesetBoundary}\r\n\r\n${changes}--${changesetBoundary}--\r\n--${batchBoundary}--\r\n`;
      return post("$batch", `multipart/mixed; boundary=${batchBoundary}`, body);
    },
    { concurrency: VAULTS_AT_ONCE },
  );
  agent.destroy();
  return calls;
}

process.on("message", (work: BareWork) => {
  const started = performance.now();
  const result =
    work.kind === "write" ? writeRows(work.connectionString, work.rows) : readVaults(work.kind, work.vaults);
  result.then(
    (calls) => process.send!({ calls, seconds: (performance.now() - started) / 1000 } satisfies BareDone),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
