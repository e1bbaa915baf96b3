import { createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingRequest } from "../http.ts";
import { decodeUnverified } from "../jwt.ts";

/** Checks of signatures that a key of a resource makes. Each function returns whether one of the keys made the signature. */

/** Maximum clock skew of a signed request: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
const MAX_SKEW_MS = 15 * 60 * 1000;

/** Whether a header has a time of the last or the next 15 minutes. */
export const isRecent = ({ headers }: IncomingRequest, header: string): boolean =>
  Math.abs(Date.parse(String(headers[header] ?? "")) - Date.now()) <= MAX_SKEW_MS;

function isSignature(claimed: string, key: string | Buffer, text: string): boolean {
  const given = Buffer.from(claimed, "base64");
  const expected = createHmac("sha256", key).update(text, "utf8").digest();
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const isSignedByBytes = (claimed: string, keys: readonly string[], text: string): boolean =>
  keys.some((key) => isSignature(claimed, Buffer.from(key, "base64"), text));

/** Standard headers in the order in which they are signed. An empty body has an empty length. */
const STANDARD_HEADERS = [
  "content-encoding",
  "content-language",
  "content-length",
  "content-md5",
  "content-type",
  "date",
  "if-modified-since",
  "if-match",
  "if-none-match",
  "if-unmodified-since",
  "range",
];

/**
 * Storage: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key. Batch:
 * https://learn.microsoft.com/rest/api/batchservice/authenticate-requests-to-the-azure-batch-service
 *
 * @param prefix - Start of the names of the service's own headers, which are signed too.
 */
export function hasSharedKey(
  account: string,
  request: IncomingRequest,
  keys: readonly string[],
  prefix: "x-ms-" | "ocp-",
): boolean {
  const { method, headers, path, query } = request;
  const [, named, claimed = ""] = /^SharedKey ([^:]+):(.+)$/.exec(headers.authorization ?? "") ?? [];
  if (named !== account || !isRecent(request, `${prefix}date`)) return false;
  const header = (name: string) => (name === "content-length" && headers[name] === "0" ? "" : (headers[name] ?? ""));
  const own = Object.keys(headers)
    .filter((name) => name.startsWith(prefix))
    .sort()
    .map((name) => `${name}:${String(headers[name]).trim()}`);
  const parameters = [...new Set(query.keys())]
    .map((name) => `${name.toLowerCase()}:${query.getAll(name).sort().join(",")}`)
    .sort();
  const text = [method, ...STANDARD_HEADERS.map(header), ...own, `/${account}${path}`, ...parameters].join("\n");
  return isSignedByBytes(claimed, keys, text);
}

/** Cosmos DB: https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources */
export function hasMasterKey({ method, headers, segments }: IncomingRequest, keys: readonly string[]): boolean {
  const token = new Map(
    decodeURIComponent(headers.authorization ?? "")
      .split("&")
      .map((pair): [string, string] => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
  );
  if (token.get("type") !== "master" || token.get("ver") !== "1.0") return false;
  const date = String(headers["x-ms-date"] ?? "").toLowerCase();
  const text = `${method.toLowerCase()}\n${segments[0] ?? ""}\n\n${date}\n\n`;
  return isSignedByBytes(token.get("sig") ?? "", keys, text);
}

/** A parsed token of Service Bus or Event Hubs: https://learn.microsoft.com/rest/api/eventhub/generate-sas-token */
interface SharedAccessSignature {
  rule: string;
  /** Path of the queue, topic or event hub for which the token is valid. Empty for the namespace. */
  entity: string;
  /** Host of the namespace. */
  host: string;
  isExpired: boolean;
  isSignedBy(keys: readonly string[]): boolean;
}

/** Returns undefined if the header is not a complete token. */
export function sharedAccessSignature({ headers }: IncomingRequest): SharedAccessSignature | undefined {
  const [scheme, text = ""] = (headers.authorization ?? "").split(" ", 2);
  const parts = new Map(text.split("&").map((pair) => pair.split("=", 2) as [string, string]));
  const [sr, sig, se, skn] = ["sr", "sig", "se", "skn"].map((name) => parts.get(name));
  if (scheme !== "SharedAccessSignature" || !sr || !sig || !se || !skn) return undefined;
  const address = decodeURIComponent(sr);
  if (!URL.canParse(address)) return undefined;
  const { hostname, pathname } = new URL(address);
  return {
    rule: decodeURIComponent(skn),
    entity: pathname.replace(/^\/|\/$/g, ""),
    host: hostname,
    isExpired: !(Number(se) * 1000 > Date.now()),
    // Unlike in storage, the text of the key signs, not the bytes that it encodes.
    isSignedBy: (keys) => keys.some((key) => isSignature(decodeURIComponent(sig), key, `${sr}\n${se}`)),
  };
}

/**
 * Returns why a service with JSON Web Tokens rejects a request. Undefined if it accepts the token. The audience is the address
 * without its query: https://learn.microsoft.com/azure/azure-signalr/signalr-reference-data-plane-rest-api
 */
export function webTokenProblem(request: IncomingRequest, keys: readonly string[]): string | undefined {
  const [, token = ""] = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/.exec(request.headers.authorization ?? "") ?? [];
  if (token === "") return "The token is missing.";
  const { header, claims } = decodeUnverified(token);
  if (header.alg !== "HS256") return "The algorithm is not HS256.";
  const [text, claimed] = [token.slice(0, token.lastIndexOf(".")), token.slice(token.lastIndexOf(".") + 1)];
  if (!keys.some((key) => isSignature(claimed, Buffer.from(key, "utf8"), text))) return "The signature is invalid.";
  if (claims.aud !== `https://${request.authority}${request.path}`) return "The audience is invalid.";
  return typeof claims.exp === "number" && claims.exp * 1000 > Date.now() ? undefined : "The token is expired.";
}
