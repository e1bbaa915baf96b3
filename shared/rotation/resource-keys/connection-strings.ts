/**
 * Formats of connection strings with a key:
 * - `storage`: https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
 * - `cosmos`, `mongodb`: https://learn.microsoft.com/azure/cosmos-db/how-to-obtain-keys
 * - `sharedAccessKey` (Service Bus, Event Hubs, IoT Hub):
 *   https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas
 * - `accessKey` (SignalR, Web PubSub): https://learn.microsoft.com/azure/azure-signalr/concept-connection-string
 * - `appConfiguration`: https://learn.microsoft.com/azure/azure-app-configuration/rest-api-authentication-hmac
 * - `redis`: https://stackexchange.github.io/StackExchange.Redis/Configuration
 * - `redisUrl`: https://www.iana.org/assignments/uri-schemes/prov/rediss
 */
export type ConnectionStringFormat =
  | "storage"
  | "cosmos"
  | "mongodb"
  | "sharedAccessKey"
  | "accessKey"
  | "appConfiguration"
  | "redis"
  | "redisUrl";

/** The parts of a connection string. It contains the key: do not store or log it. */
export interface ConnectionString {
  text: string;
  format: ConnectionStringFormat;
  /** Name of the account, or the first label of the host: the name of the resource, in lower case. */
  resource: string;
  /** Name of the authorization rule, or ID of the App Configuration key. */
  keyName?: string;
  /** Name of the queue, topic or event hub. */
  entity?: string;
  key: string;
}

/** A part of a text, from `start` to before `end`. */
interface Span {
  start: number;
  end: number;
}
interface Parsed extends ConnectionString {
  keySpan: Span;
  /** Span of `keyName`. */
  nameSpan?: Span;
  /** The key is percent-encoded, because the text is a URL. */
  encoded: boolean;
}

/**
 * Reads a connection string. Undefined if the text has none of the formats, has no key, or has a part twice: then it is not
 * known which one its client uses.
 */
export function readConnectionString(text: string): ConnectionString | undefined {
  const parsed = parse(text);
  if (parsed === undefined) return undefined;
  const { keySpan: _, nameSpan: __, encoded: ___, ...connectionString } = parsed;
  return connectionString;
}

/**
 * Returns the text with another key. Everything else stays byte for byte. `id`: the ID of the new key, which replaces that of
 * the old one in App Configuration.
 *
 * @throws {TypeError} if the text is not a connection string, or if its format can't contain the key.
 */
export function rewriteConnectionString(text: string, key: string, id?: string): string {
  const parsed = parse(text);
  if (parsed === undefined) throw new TypeError("The text is not a connection string with a key.");
  const keyText = parsed.encoded ? encodeURIComponent(key) : key;
  const replacements: [Span, string][] = [[parsed.keySpan, keyText]];
  if (id !== undefined && parsed.format === "appConfiguration") replacements.push([parsed.nameSpan!, id]);
  // From the end of the text, so that a replacement does not move the spans before it.
  replacements.sort(([a], [b]) => b.start - a.start);
  let rewritten = text;
  for (const [{ start, end }, value] of replacements)
    rewritten = rewritten.slice(0, start) + value + rewritten.slice(end);
  if (parse(rewritten)?.key !== key) throw new TypeError("The format of the connection string can't contain the key.");
  return rewritten;
}

function parse(text: string): Parsed | undefined {
  return parseUrl(text) ?? parseParts(text, ";") ?? parseRedis(text);
}

/** Reads `name=value` parts. Names ignore case, and spaces around names and values don't belong to them. */
function readParts(text: string, separator: string): Map<string, Span> | undefined {
  const parts = new Map<string, Span>();
  let start = 0;
  for (const part of text.split(separator)) {
    const equals = part.indexOf("=");
    if (equals >= 0) {
      const name = part.slice(0, equals).trim().toLowerCase();
      if (parts.has(name)) return undefined;
      const value = part.slice(equals + 1);
      const valueStart = start + equals + 1 + (value.length - value.trimStart().length);
      parts.set(name, { start: valueStart, end: valueStart + value.trim().length });
    }
    start += part.length + separator.length;
  }
  return parts;
}

/** Formats of `name=value` parts: the parts that identify each, all of which must be present. */
const PART_FORMATS: readonly {
  format: ConnectionStringFormat;
  resource: string;
  key: string;
  keyName?: string;
}[] = [
  { format: "storage", resource: "accountname", key: "accountkey" },
  { format: "cosmos", resource: "accountendpoint", key: "accountkey" },
  { format: "sharedAccessKey", resource: "endpoint", key: "sharedaccesskey", keyName: "sharedaccesskeyname" },
  { format: "sharedAccessKey", resource: "hostname", key: "sharedaccesskey", keyName: "sharedaccesskeyname" },
  { format: "accessKey", resource: "endpoint", key: "accesskey" },
  { format: "appConfiguration", resource: "endpoint", key: "secret", keyName: "id" },
];

function parseParts(text: string, separator: string): Parsed | undefined {
  const parts = readParts(text, separator);
  if (parts === undefined) return undefined;
  const textOf = (name: string) => {
    const span = parts.get(name);
    return span === undefined || span.start === span.end ? undefined : text.slice(span.start, span.end);
  };
  const matching = PART_FORMATS.filter(({ resource, key, keyName }) =>
    [resource, key, ...(keyName === undefined ? [] : [keyName])].every((name) => textOf(name) !== undefined),
  );
  // With the parts of two formats, it is unknown which of them the client reads.
  if (matching.length !== 1) return undefined;
  const { format, resource, key, keyName } = matching[0]!;
  const entity = format === "sharedAccessKey" ? textOf("entitypath") : undefined;
  const named = keyName === undefined ? undefined : { keyName: textOf(keyName)!, nameSpan: parts.get(keyName)! };
  return {
    text,
    format,
    resource: firstLabel(textOf(resource)!),
    ...named,
    ...(entity !== undefined && { entity }),
    key: textOf(key)!,
    keySpan: parts.get(key)!,
    encoded: false,
  };
}

/** Returns the first label of the host of a URL, a host name or an account name, in lower case. */
const firstLabel = (address: string): string =>
  address
    .replace(/^[a-z][a-z0-9+.-]*:\/\//i, "")
    .split(/[./:]/, 1)[0]!
    .toLowerCase();

/** Reads `HOST:PORT,password=KEY,ssl=True`. */
function parseRedis(text: string): Parsed | undefined {
  const host = /^\s*([A-Za-z0-9][A-Za-z0-9.-]*)(?::\d{1,5})?\s*,/.exec(text)?.[1];
  const span = host === undefined ? undefined : readParts(text, ",")?.get("password");
  if (span === undefined || span.start === span.end) return undefined;
  const key = text.slice(span.start, span.end);
  return { text, format: "redis", resource: firstLabel(host!), key, keySpan: span, encoded: false };
}

/** Reads `mongodb://USER:KEY@HOST:PORT/…` and `rediss://:KEY@HOST:PORT`. */
function parseUrl(text: string): Parsed | undefined {
  const match = /^(\s*(mongodb(?:\+srv)?|rediss?):\/\/[^:@/?#]*:)([^:@/?#\s]+)@([^:@/?#,\s]+)/i.exec(text);
  if (match === null) return undefined;
  const [, before = "", scheme = "", keyText = "", host = ""] = match;
  const format = scheme.toLowerCase().startsWith("mongodb") ? "mongodb" : "redisUrl";
  const key = decode(keyText);
  if (key === undefined) return undefined;
  const keySpan = { start: before.length, end: before.length + keyText.length };
  return { text, format, resource: firstLabel(host), key, keySpan, encoded: true };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined; // An invalid escape: the key is unknown.
  }
}
