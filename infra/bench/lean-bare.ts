/**
 * Baseline of the benchmark `lean`, in a process of its own: the same requests with the same concurrency by `node:http`,
 * `node:https`, `JSON.parse` and `JSON.stringify`. Executes the messages of its parent one after the other.
 */
import { createHmac, randomUUID } from "node:crypto";
import http from "node:http";
import https from "node:https";
import pMap from "p-map";

export type BareWork =
  | { kind: "delta" | "full"; vaults: string[] }
  /** Rows as the service wrote them, without their keys. */
  | { kind: "write"; connectionString: string; rows: object[] };

export interface BareDone {
  calls: number;
  seconds: number;
}

const API = "api-version=2025-07-01";
/** The same concurrency as in the service: vaults, details of each type, connections per host. */
const VAULTS_AT_ONCE = 10;
const DETAILS_AT_ONCE = 8;
const CONNECTIONS = 8;

interface Item {
  id?: string;
  kid?: string;
  managed?: boolean;
}

async function read(kind: "delta" | "full", vaults: string[]): Promise<number> {
  const token = await tokenOf(new URL(vaults[0]!).hostname.split(".").slice(1).join("."));
  const agent = new https.Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  let calls = 0;
  const get = (url: string) =>
    new Promise<{ value: Item[]; nextLink?: string }>((resolve, reject) => {
      calls++;
      const headers = { authorization: `Bearer ${token}` };
      const answered = (answer: http.IncomingMessage) => {
        let body = "";
        answer.setEncoding("utf8");
        answer.on("data", (part: string) => {
          body += part;
        });
        answer.on("end", () => resolve(JSON.parse(body)));
      };
      https.get(url, { agent, headers }, answered).on("error", reject);
    });

  async function readList(vault: string, list: "secrets" | "keys" | "certificates"): Promise<void> {
    const items: Item[] = [];
    for (let url: string | undefined = `${vault}/${list}?${API}`; url; ) {
      const page = await get(url);
      items.push(...page.value);
      url = page.nextLink;
    }
    if (kind === "delta" || list === "secrets") return;
    const own = items.filter(({ managed }) => !managed).map(({ id, kid }) => kid ?? id!);
    const details = (id: string) =>
      list === "keys" ? [`${id}?${API}`, `${id}/rotationpolicy?${API}`] : [`${id}?${API}`];
    await pMap(own, (id) => Promise.all(details(id).map(get)), { concurrency: DETAILS_AT_ONCE });
  }

  const lists = ["secrets", "keys", "certificates"] as const;
  await pMap(vaults, (vault) => Promise.all(lists.map((list) => readList(vault, list))), {
    concurrency: VAULTS_AT_ONCE,
  });
  agent.destroy();
  return calls;
}

async function tokenOf(suffix: string): Promise<string> {
  const { IDENTITY_ENDPOINT, IDENTITY_HEADER } = process.env;
  const url = `${IDENTITY_ENDPOINT}?api-version=2019-08-01&resource=${encodeURIComponent(`https://${suffix}`)}`;
  const answer = await fetch(url, { headers: { "x-identity-header": IDENTITY_HEADER! } });
  return ((await answer.json()) as { access_token: string }).access_token;
}

const ROWS_IN_TRANSACTION = 100;
const COPIES = 2;
const PARTITIONS = ["all", "sub", "vault"];

/** Writes each row twice into three partitions, because the service stores an asset that often. */
async function write(connectionString: string, rows: object[]): Promise<number> {
  const parts = Object.fromEntries(connectionString.split(";").map((part) => part.split(/=(.*)/s).slice(0, 2)));
  const { AccountName: account, AccountKey: key, TableEndpoint: endpoint } = parts as Record<string, string>;
  const agent = new http.Agent({ keepAlive: true, maxSockets: VAULTS_AT_ONCE });
  let calls = 0;
  const post = (path: string, type: string, body: string) =>
    new Promise<void>((resolve, reject) => {
      calls++;
      const url = new URL(`${endpoint}/${path}`);
      const date = new Date().toUTCString();
      const text = `${date}\n/${account}${url.pathname}`;
      const signature = createHmac("sha256", Buffer.from(key!, "base64")).update(text).digest("base64");
      const headers = {
        "x-ms-date": date,
        "x-ms-version": "2019-02-02",
        authorization: `SharedKeyLite ${account}:${signature}`,
        accept: "application/json",
        "content-type": type,
        "content-length": Buffer.byteLength(body),
        dataserviceversion: "3.0",
      };
      const sent = http.request(url, { method: "POST", agent, headers }, (answer) => {
        answer.resume();
        answer.on("end", () =>
          (answer.statusCode ?? 500) < 400 ? resolve() : reject(new Error(`${answer.statusCode}`)),
        );
      });
      sent.on("error", reject);
      sent.end(body);
    });
  const table = `Bare${randomUUID().replaceAll("-", "")}`;
  await post("Tables", "application/json", JSON.stringify({ TableName: table }));
  const batches: string[][] = [];
  for (const partition of PARTITIONS) {
    let batch: string[] = [];
    for (const [at, row] of rows.entries()) {
      for (let copy = 0; copy < COPIES; copy++) {
        const RowKey = `${copy}!${at}`;
        batch.push(
          `Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nPUT ${endpoint}/${table}(PartitionKey='${partition}',RowKey='${RowKey}') HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n\r\n${JSON.stringify({ PartitionKey: partition, RowKey, ...row })}`,
        );
        if (batch.length === ROWS_IN_TRANSACTION) batches.push(batch.splice(0));
      }
    }
    if (batch.length > 0) batches.push(batch);
    batch = [];
  }
  await pMap(
    batches,
    (batch) => {
      const [outer, inner] = [`batch_${randomUUID()}`, `changeset_${randomUUID()}`];
      const body = `--${outer}\r\nContent-Type: multipart/mixed; boundary=${inner}\r\n\r\n${batch.map((part) => `--${inner}\r\n${part}\r\n`).join("")}--${inner}--\r\n--${outer}--\r\n`;
      return post("$batch", `multipart/mixed; boundary=${outer}`, body);
    },
    { concurrency: VAULTS_AT_ONCE },
  );
  agent.destroy();
  return calls;
}

process.on("message", (work: BareWork) => {
  const started = performance.now();
  const done = work.kind === "write" ? write(work.connectionString, work.rows) : read(work.kind, work.vaults);
  done.then(
    (calls) => process.send!({ calls, seconds: (performance.now() - started) / 1000 } satisfies BareDone),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
