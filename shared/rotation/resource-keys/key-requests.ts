import { createHmac } from "node:crypto";
import { SignJWT } from "jose";
import { MINUTE_SECONDS, SECOND_MS } from "../../platform/time.ts";
import type { KeyScheme } from "./kinds.ts";

/** A request to sign, and the names that signatures contain. */
export interface KeyRequest {
  method: "GET" | "HEAD";
  url: URL;
  /** Name of the account. */
  account: string;
  /** Name of the authorization rule. */
  rule: string;
  key: string;
  now: Date;
}

/** Lifetime of tokens. Services accept a clock difference of about five minutes. */
const TOKEN_SECONDS = 10 * MINUTE_SECONDS;

/**
 * Returns the headers that authorize a request with a key.
 *
 * @throws {Error} if the key can't sign, such as an empty one.
 */
export async function authorize(scheme: KeyScheme, request: KeyRequest): Promise<Record<string, string>> {
  switch (scheme.name) {
    case "header":
      return { [scheme.header]: request.key };
    case "basic":
      return { authorization: `Basic ${Buffer.from(`${request.account}:${request.key}`).toString("base64")}` };
    case "masterKey":
      return masterKey(request);
    case "sharedAccessSignature":
      return sharedAccessSignature(request);
    case "storageSharedKey":
      return sharedKey(request, { "x-ms-date": request.now.toUTCString(), "x-ms-version": "2023-11-03" });
    case "batchSharedKey":
      return sharedKey(request, { "ocp-date": request.now.toUTCString() });
    case "jwt":
      return await jsonWebToken(request);
  }
}

const signature = (key: string | Buffer, text: string): string =>
  createHmac("sha256", key).update(text, "utf8").digest("base64");

/**
 * Cosmos DB. The signature covers the type and the link of the resource: of the list `/dbs` the type `dbs` and no link, of
 * `/dbs/one` the type `dbs` and the link `dbs/one`.
 * https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources
 */
function masterKey({ method, url, key, now }: KeyRequest): Record<string, string> {
  const date = now.toUTCString();
  const segments = url.pathname.split("/").filter((one) => one !== "");
  const isList = segments.length % 2 === 1;
  const [type, link] = isList
    ? [segments.at(-1)!, segments.slice(0, -1).join("/")]
    : [segments.at(-2)!, segments.join("/")];
  const text = [method.toLowerCase(), type, link, date.toLowerCase(), "", ""].join("\n");
  const token = `type=master&ver=1.0&sig=${signature(Buffer.from(key, "base64"), text)}`;
  return { authorization: encodeURIComponent(token), "x-ms-date": date, "x-ms-version": "2018-12-31" };
}

/**
 * Service Bus and Event Hubs. The key signs as text, not as the bytes of its base64:
 * https://learn.microsoft.com/rest/api/eventhub/generate-sas-token
 */
function sharedAccessSignature({ url, rule, key, now }: KeyRequest): Record<string, string> {
  // `$namespaceinfo` and `$Resources` belong to the namespace.
  const entity = url.pathname.startsWith("/$") ? "/" : url.pathname;
  const resource = encodeURIComponent(`https://${url.hostname}${entity}`);
  const expiry = Math.floor(now.getTime() / SECOND_MS) + TOKEN_SECONDS;
  const signed = encodeURIComponent(signature(key, `${resource}\n${expiry}`));
  const token = `sr=${resource}&sig=${signed}&se=${expiry}&skn=${encodeURIComponent(rule)}`;
  return { authorization: `SharedAccessSignature ${token}` };
}

/** Number of standard headers that a Shared Key signature covers. The request has none of them. */
const STANDARD_HEADERS = 11;

/**
 * Storage and Batch. The signature covers the service's own headers, in the order of their names:
 * https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key and
 * https://learn.microsoft.com/rest/api/batchservice/authenticate-requests-to-the-azure-batch-service
 */
function sharedKey({ method, url, account, key }: KeyRequest, own: Record<string, string>): Record<string, string> {
  const headers = Object.entries(own).map(([name, value]) => `${name}:${value}`);
  const query = [...url.searchParams].map(([name, value]) => `${name.toLowerCase()}:${value}`).sort();
  const standard = Array<string>(STANDARD_HEADERS).fill("");
  const text = [method, ...standard, ...headers, `/${account}${url.pathname}`, ...query].join("\n");
  return { ...own, authorization: `SharedKey ${account}:${signature(Buffer.from(key, "base64"), text)}` };
}

/**
 * SignalR and Web PubSub: a token for the address without its query.
 * https://learn.microsoft.com/azure/azure-signalr/signalr-reference-data-plane-rest-api#authenticate-via-azure-signalr-service-accesskey
 */
async function jsonWebToken({ url, key, now }: KeyRequest): Promise<Record<string, string>> {
  const issuedAt = Math.floor(now.getTime() / SECOND_MS);
  const token = await new SignJWT()
    .setProtectedHeader({ alg: "HS256", typ: "JWT" })
    .setAudience(`${url.origin}${url.pathname}`)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + TOKEN_SECONDS)
    .sign(Buffer.from(key, "utf8"));
  return { authorization: `Bearer ${token}` };
}
