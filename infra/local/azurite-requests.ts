import { createHmac, createSecretKey, type KeyObject } from "node:crypto";

/** What is used of Azurite's `common/utils/utils`. */
interface Utils {
  getURLQueries(url: string): Record<string, string>;
  computeHMACSHA256(text: string, key: Uint8Array): string;
}

/** What is used of a service's `generated/utils/utils`. */
interface Templates {
  isURITemplateMatch(path: string, template: string): boolean;
}

/** What is used of Azurite's `table/batch/`. */
interface Batches {
  utils: { StreamToString(stream: unknown): Promise<string> };
  orchestrator: {
    prototype: {
      processBatchRequestAndSerializeResponse(request: string): Promise<string>;
      extractKeys(operation: { getUrl(): string }): { partitionKey: string; rowKey: string };
    };
  };
  serialization: { prototype: { batchBoundary: string; extractBatchBoundary(request: string): void } };
}

/** What is used of Azurite's `TableBatchOperation`: the headers of one request of a transaction, a line each. */
interface Operations {
  default: new (headers: string) => { rawHeaders: string[] };
}

/** What is used of Azurite's `BatchRequestHeaders`. */
interface Headers {
  rawHeaders: string[];
  headerItems: Record<string, string>;
  headerCount: number;
  createDictFromRawHeaders(): void;
  header(name: string): string | undefined;
}

/** More than the texts that come again; they go all at once when there are more. */
const MAX_TEXTS = 2_000;

/**
 * Spares Azurite work that it repeats for every request: it parses the templates of all its operations and holds the path
 * against them, parses the address by a function of Node that looks through the stack for who calls it, and copies the key
 * of the account. What it answers is the same.
 */
export function repeatNothing(utils: Utils, ...services: Templates[]): void {
  for (const service of services) service.isURITemplateMatch = remembered(service.isURITemplateMatch);

  const { getURLQueries } = utils;
  utils.getURLQueries = (url) => {
    const at = url.indexOf("?");
    if (at < 0) return {};
    return PLAIN.test(url) ? queriesOf(url.slice(at + 1)) : getURLQueries(url);
  };

  const keys = new WeakMap<Uint8Array, KeyObject>();
  utils.computeHMACSHA256 = (text, key) => {
    const made = keys.get(key) ?? createSecretKey(key);
    keys.set(key, made);
    return createHmac("sha256", made).update(text, "utf8").digest("base64");
  };
}

/** An address that Node takes as it is written. */
const PLAIN = /^\/(?!\/)[^\s\\#@?]*\?(?!\?)[^\s\\#@]*$/;

/** As Azurite takes them: none that has no name, or more than one `=`. */
function queriesOf(query: string): Record<string, string> {
  const queries: Record<string, string> = {};
  for (const part of query.split("&")) {
    const [name, value, ...more] = part.split("=");
    if (name !== "" && value !== undefined && more.length === 0) queries[name!] = value;
  }
  return queries;
}

function remembered(matches: Templates["isURITemplateMatch"]): Templates["isURITemplateMatch"] {
  const templates = new Map<string, Map<string, boolean>>();
  return (path, template) => {
    const paths = templates.get(template) ?? new Map<string, boolean>();
    const before = paths.get(path);
    if (before !== undefined) return before;
    if (paths.size >= MAX_TEXTS) paths.clear();
    const does = matches(path, template);
    templates.set(template, paths.set(path, does));
    return does;
  };
}

/**
 * Spares Azurite a tenth of what a transaction costs: it makes JSON of each request and answer for its debug log, though that
 * is off, decodes the whole request to find the boundary in its first line, and each address twice for its two keys. What it answers is the same.
 */
export function logNoTransactions({ utils, orchestrator, serialization }: Batches): void {
  const { StreamToString: read } = utils;
  utils.StreamToString = async (stream) => unlogged(await read(stream));
  const { processBatchRequestAndSerializeResponse: process } = orchestrator.prototype;
  orchestrator.prototype.processBatchRequestAndSerializeResponse = async function (request) {
    return unlogged(await process.call(this, request.toString()));
  };
  const { extractKeys } = orchestrator.prototype;
  orchestrator.prototype.extractKeys = function (operation) {
    const [, partitionKey, rowKey] = KEYS.exec(operation.getUrl()) ?? [];
    if (partitionKey === undefined || rowKey === undefined) return extractKeys.call(this, operation);
    return { partitionKey: decodeURIComponent(partitionKey), rowKey: decodeURIComponent(rowKey) };
  };
  const { extractBatchBoundary: extract } = serialization.prototype;
  serialization.prototype.extractBatchBoundary = function (request) {
    const [boundary] = BOUNDARY.exec(request) ?? [];
    if (boundary === undefined) extract.call(this, request);
    else this.batchBoundary = boundary;
  };
}

/** The keys in a path, where neither has a quotation mark, which is doubled there. */
const KEYS = /\(PartitionKey='((?:[^'%]|%(?!27))*)',RowKey='((?:[^'%]|%(?!27))+)'\)$/;

const BOUNDARY = /^--batch_(\w+-?)+/;

/** The same text, of which JSON has nothing. */
const unlogged = (text: string): string => Object.assign(new String(text), { toJSON: () => "" }) as unknown as string;

/** More than the headers of a request have; what is longer holds more than those. */
const MOST_HEADERS = 2_000;

/** Lets Azurite read the headers of a transaction's requests once where they are the same text. What it answers is the same. */
export function readHeadersOnce({
  operation,
  headers,
}: {
  operation: Operations;
  headers: { prototype: Headers };
}): void {
  const lines = new Map<string, string[]>();
  const Operation = operation.default;
  operation.default = class extends Operation {
    constructor(text: string) {
      const known = lines.get(text);
      // A copy, since the text is a part of the transaction's, which would be kept as long.
      const own = known || text.length > MOST_HEADERS ? "" : Buffer.from(text).toString();
      super(known ? "" : own || text);
      if (known) this.rawHeaders = known;
      else if (own) {
        if (lines.size >= MAX_TEXTS) lines.clear();
        lines.set(own, this.rawHeaders);
      }
    }
  };

  const read = new WeakMap<string[], Pick<Headers, "headerItems" | "headerCount">>();
  const { createDictFromRawHeaders } = headers.prototype;
  headers.prototype.createDictFromRawHeaders = function () {
    const known = read.get(this.rawHeaders);
    if (known) Object.assign(this, known);
    else {
      createDictFromRawHeaders.call(this);
      read.set(this.rawHeaders, { headerItems: this.headerItems, headerCount: this.headerCount });
    }
  };
  headers.prototype.header = function (name) {
    return this.headerItems[name.toLowerCase()];
  };
}
