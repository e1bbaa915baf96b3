/**
 * Generates requests from the OpenAPI document (valid, nearly valid and hostile ones), sends them to a service, and checks that
 * no response is a 500 and that every response is documented. The same seed generates the same requests. test/http and
 * `npm run fuzz` use this module.
 */
import fc from "fast-check";
import { Conformance } from "./conformance.ts";
import type { Service } from "./service.ts";
import { createUsers, makeToken } from "./users.ts";

interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  pattern?: string;
  format?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
}

interface Operation {
  operationId: string;
  parameters?: { name: string; in: "path" | "query" | "header"; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

export interface Description {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

export interface GeneratedRequest {
  operation: string;
  method: string;
  /** Includes the query. Escaped. */
  path: string;
  headers: Record<string, string>;
  body?: string;
  /** The sender: the administrator, a caller without a token (`nobody`), or a caller with an invalid token (`stranger`). */
  as: "administrator" | "nobody" | "stranger";
}

/** Ids that exist in the service, by the name of the path parameter. */
export type ExistingIds = Record<string, readonly string[]>;

/** Operations whose valid requests start work that takes seconds. Few of the generated requests to them are valid. */
const SLOW_OPERATIONS = new Set(["startScan"]);

/** Texts that have caused errors in other services. NUL is missing, because the platform's web server rejects it in paths. */
const HOSTILE_TEXTS = [
  "",
  " ",
  "0",
  "-1",
  "null",
  "true",
  "NaN",
  "9".repeat(400),
  "1e999",
  "__proto__",
  "constructor",
  "toString",
  "../../etc/passwd",
  "..\\..\\host.json",
  "%00%2e%2e%2f",
  "' or PartitionKey ne '",
  "'; drop table users; --",
  "<script>alert(1)</script>",
  "{{7*7}}#{7*7}",
  "\r\nSet-Cookie: a=b",
  "a/b?c#d",
  "|directory",
  "\u202Eevil\u202C",
  "e\u0301\uFFFD\u200B",
  "🔑".repeat(70),
  "ß".repeat(257),
  "x".repeat(2_000),
  "2026-02-30",
  "2026-11-21T99:99:99Z",
  "+275760-09-13T00:00:00.001Z",
  "eyJhIjoxfQ",
];

const hostileText = fc.oneof(fc.constantFrom(...HOSTILE_TEXTS), fc.string({ unit: "grapheme", maxLength: 60 }));

/** Hostile texts in JSON, which can also contain a lone surrogate or NUL. */
const hostileMember = fc.oneof(hostileText, fc.constantFrom("\uD800", "a\u0000b", "\uDFFF\uD83D"));

const hostileNumber = fc.constantFrom(
  0,
  -0,
  -1,
  1.5,
  1e308,
  -1e308,
  2 ** 31,
  2 ** 53,
  -(2 ** 53),
  5e-324,
  100_000_000_000_000_000_000,
);

const hostileValue: fc.Arbitrary<unknown> = fc.oneof(
  hostileMember,
  hostileNumber,
  fc.constantFrom<unknown>(null, true, false, [], {}, [[]], [null], { toString: 1 }, ["x".repeat(300)]),
  fc.jsonValue({ maxDepth: 3 }),
);

/** Generates values that match the schema. */
function validValues(schema: Schema, document: Description): fc.Arbitrary<unknown> {
  const valuesOf = (inner: Schema) => validValues(inner, document);
  if (schema.$ref) return valuesOf(document.components.schemas[schema.$ref.split("/").at(-1)!]!);
  if ("const" in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return fc.oneof(...choices.map(valuesOf));
  if (schema.allOf) {
    return fc.tuple(...schema.allOf.map(valuesOf)).map((parts) => Object.assign({}, ...(parts as object[])) as unknown);
  }
  if (Array.isArray(schema.type)) return fc.oneof(...schema.type.map((type) => valuesOf({ ...schema, type })));
  switch (schema.type) {
    case "string":
      return text(schema);
    case "integer":
      return wholeNumber(schema);
    case "number":
      return fc.double({ min: schema.minimum ?? -1e9, max: schema.maximum ?? 1e9, noNaN: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return fc.array(valuesOf(schema.items ?? {}), {
        minLength: schema.minItems ?? 0,
        maxLength: Math.min(schema.maxItems ?? 5, 5),
      });
    case "object":
      return members(schema, document);
    default:
      return fc.jsonValue({ maxDepth: 2 });
  }
}

function text({ format, pattern, minLength = 0, maxLength = 60 }: Schema): fc.Arbitrary<string> {
  if (format === "uuid") return fc.uuid();
  if (format === "date-time")
    return fc.date({ noInvalidDate: true, min: new Date(0) }).map((date) => date.toISOString());
  if (format === "email") return fc.emailAddress();
  if (format === "uri") return fc.webUrl();
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  return fc.string({ minLength, maxLength: Math.min(maxLength, minLength + 60) });
}

/** Generates the limits, the values next to them, and values in between. */
function wholeNumber({ minimum = -1000, maximum = 1000 }: Schema): fc.Arbitrary<number> {
  const limits = [minimum, minimum + 1, maximum - 1, maximum].filter((value) => value >= minimum && value <= maximum);
  return fc.oneof(fc.constantFrom(...limits), fc.integer({ min: minimum, max: maximum }));
}

function members({ properties = {}, required = [] }: Schema, document: Description): fc.Arbitrary<unknown> {
  const values = Object.entries(properties).map(([name, schema]) => [name, validValues(schema, document)] as const);
  return fc.record(Object.fromEntries(values), { requiredKeys: required.filter((name) => name in properties) });
}

/** Generates values that are valid except for one member, which is added, removed, replaced, or also sent in snake_case. */
function nearlyValidValues(valid: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc
    .tuple(valid, fc.nat(), fc.constantFrom("add", "remove", "replace", "bothSpellings"), hostileMember, hostileValue)
    .map(([value, index, change, name, hostile]) => {
      if (typeof value !== "object" || value === null || Array.isArray(value)) return hostile;
      const entries = Object.entries(value);
      const position = entries.length === 0 ? 0 : index % entries.length;
      if (change === "add" || entries.length === 0) entries.push([name, hostile]);
      else if (change === "remove") entries.splice(position, 1);
      else if (change === "replace") entries[position] = [entries[position]![0], hostile];
      else entries.push([entries[position]![0].replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), hostile]);
      return Object.fromEntries(entries);
    });
}

/** A request body with its Content-Type. Both are undefined for a request without a body. */
type Body = { text?: string; type?: string };
const json = (value: unknown): Body => ({ text: JSON.stringify(value), type: "application/json" });

const BROKEN_TEXTS = [
  "{",
  "[1,",
  '{"a":1}{"b":2}',
  "\uFEFF{}",
  "undefined",
  "'x'",
  '{"a":\u0001}',
  "[".repeat(5_000),
  "",
];
const brokenBody: fc.Arbitrary<Body> = fc.constantFrom(...BROKEN_TEXTS).map((broken) => ({ ...json(0), text: broken }));
const otherBody: fc.Arbitrary<Body> = fc.record({
  text: fc.string(),
  type: fc.constantFrom("text/plain", "application/xml", "multipart/form-data", "application/json; charset=utf-16"),
});

function bodies(operation: Operation, document: Description): fc.Arbitrary<Body> {
  const schema = operation.requestBody?.content["application/json"]?.schema;
  const none: fc.Arbitrary<Body> = fc.constant({});
  if (!schema) return fc.oneof({ weight: 9, arbitrary: none }, { weight: 1, arbitrary: hostileValue.map(json) });
  const valid = validValues(schema, document);
  return fc.oneof(
    { weight: SLOW_OPERATIONS.has(operation.operationId) ? 1 : 10, arbitrary: valid.map(json) },
    { weight: 14, arbitrary: nearlyValidValues(valid).map(json) },
    { weight: 2, arbitrary: hostileValue.map(json) },
    { weight: 2, arbitrary: brokenBody },
    { weight: 1, arbitrary: otherBody },
    { weight: 1, arbitrary: none },
  );
}

const urlEncoded = (value: unknown): string => encodeURIComponent(String(value).toWellFormed().replaceAll("\0", ""));

function paths(
  template: string,
  operation: Operation,
  document: Description,
  existingIds: ExistingIds,
): fc.Arbitrary<string> {
  const parts = template.split("/").map((part): fc.Arbitrary<string> => {
    const name = /^\{(.+)\}$/.exec(part)?.[1];
    if (name === undefined) return fc.constant(part);
    const isParameter = (parameter: { in: string; name: string }) => parameter.in === "path" && parameter.name === name;
    const schema = operation.parameters?.find(isParameter)?.schema ?? {};
    const values = [validValues(schema, document), hostileText];
    if (existingIds[name]?.length) values.unshift(fc.constantFrom(...existingIds[name]));
    return fc.oneof(...values).map(urlEncoded);
  });
  const suffix = fc.constantFrom("/", "//", "/..", "/.", "/%2F", "%", ".json", ";a=b", "/extra");
  const optionalSuffix = fc.oneof({ weight: 30, arbitrary: fc.constant("") }, { weight: 1, arbitrary: suffix });
  return fc.tuple(fc.tuple(...parts), optionalSuffix).map(([segments, end]) => segments.join("/") + end);
}

function queries(operation: Operation, document: Description): fc.Arbitrary<string> {
  const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "query");
  const unknown = fc.tuple(hostileText, hostileText);
  const valid = declared.map(({ name, schema }) => fc.tuple(fc.constant(name), validValues(schema, document)));
  const hostile = declared.map(({ name }) => fc.tuple(fc.constant(name), hostileText));
  const pair: fc.Arbitrary<[string, unknown]> =
    declared.length === 0
      ? unknown
      : fc.oneof(
          { weight: 10, arbitrary: fc.oneof(...valid) },
          { weight: 5, arbitrary: fc.oneof(...hostile) },
          { weight: 1, arbitrary: unknown },
        );
  const pairs = fc.array(pair, { maxLength: 4 });
  return fc
    .oneof(
      { weight: declared.length === 0 ? 1 : 9, arbitrary: pairs },
      { weight: declared.length === 0 ? 9 : 1, arbitrary: fc.constant([]) },
    )
    .map((list) => list.map(([name, value]) => `${urlEncoded(name)}=${urlEncoded(value)}`).join("&"));
}

/** Unusual headers, in ASCII only: the platform fails on characters beyond Latin-1 before it calls the service. */
const unusualHeaders: fc.Arbitrary<Record<string, string>> = fc.oneof(
  { weight: 6, arbitrary: fc.constant({}) },
  {
    weight: 4,
    arbitrary: fc
      .subarray<[string, string]>([
        ["X-Request-Id", "a b<script>"],
        ["X-Request-Id", "sane-id.1"],
        ["X-Forwarded-For", "1.2.3.4, ::1, nonsense"],
        ["X-Forwarded-For", "[::ffff:10.0.0.1]:99999,"],
        ["If-Match", '"nothing"'],
        ["If-Match", "*"],
        ["If-Match", 'W/"a", junk, "'],
        ["Accept", "application/xml;q=x"],
        ["Accept-Encoding", "gzip, br;q=0, *"],
        ["X-HTTP-Method-Override", "DELETE"],
        ["Range", "bytes=0-0"],
        ["Cookie", "__proto__=1; session=%00"],
        ["Content-Encoding", "gzip"],
        ["Traceparent", "00-zz"],
        ["X-MS-Client-Principal", "bm90IGpzb24="],
        ["X-Long", "x".repeat(8_000)],
      ])
      .map((pairs) => Object.fromEntries(pairs)),
  },
);

const METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

function requests(
  template: string,
  method: string,
  document: Description,
  existingIds: ExistingIds,
): fc.Arbitrary<GeneratedRequest> {
  const operation = document.paths[template]![method]!;
  return fc
    .record({
      method: fc.oneof(
        { weight: 19, arbitrary: fc.constant(method.toUpperCase()) },
        { weight: 1, arbitrary: fc.constantFrom(...METHODS) },
      ),
      path: paths(template, operation, document, existingIds),
      query: queries(operation, document),
      body: bodies(operation, document),
      headers: unusualHeaders,
      as: fc.oneof(
        { weight: 17, arbitrary: fc.constant("administrator" as const) },
        { weight: 3, arbitrary: fc.constantFrom("nobody" as const, "stranger" as const) },
      ),
    })
    .map(({ query, body, ...rest }) => {
      const hasBody = body.text !== undefined && rest.method !== "GET" && rest.method !== "HEAD";
      return {
        operation: operation.operationId,
        method: rest.method,
        as: rest.as,
        path: query === "" ? rest.path : `${rest.path}?${query}`,
        headers: { ...rest.headers, ...(hasBody && body.type ? { "Content-Type": body.type } : {}) },
        ...(hasBody ? { body: body.text! } : {}),
      };
    });
}

/** Returns `count` requests, spread over all operations. */
export function generatedRequests(
  document: Description,
  options: { seed: number; count: number; existingIds: ExistingIds },
): GeneratedRequest[] {
  const operationRequests = Object.entries(document.paths).flatMap(([template, methods]) =>
    Object.keys(methods).map((method) => requests(template, method, document, options.existingIds)),
  );
  return fc.sample(fc.oneof(...operationRequests), { seed: options.seed, numRuns: options.count });
}

/** Number of concurrent requests. */
const CONCURRENT_REQUESTS = 8;

/**
 * Sends the requests and compares each response with the OpenAPI document.
 *
 * @returns The number of responses by status, and the operations that succeeded at least once.
 * @throws {Error} With the seed and the whole request, at the first 500 or undocumented response.
 */
export async function sendGenerated(
  service: Service,
  options: { seed: number; count: number; existingIds: ExistingIds },
): Promise<{ statuses: Record<string, number>; succeeded: Set<string> }> {
  const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as Description;
  const conformance = new Conformance(document as unknown as ConstructorParameters<typeof Conformance>[0]);
  const unsentRequests = generatedRequests(document, options);
  const statuses: Record<string, number> = {};
  const succeeded = new Set<string>();

  async function send(request: GeneratedRequest): Promise<void> {
    const headers = { ...request.headers, ...(await authorization(service, request.as)) };
    const address = service.url + request.path;
    const answer = await fetch(address, {
      method: request.method,
      headers,
      redirect: "manual" as const,
      ...(request.body === undefined ? {} : { body: request.body }),
    });
    const answerText = await answer.text();
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
    if (answer.status < 300) succeeded.add(request.operation);
    if (answer.status === 500)
      throw new Error(`It answered 500: ${answerText}\n${await readLogLines(service, answer.headers)}`);
    if (request.method === "HEAD") return;
    conformance.check(
      request.method,
      new URL(address).pathname,
      answer.status,
      answer.headers.get("content-type"),
      answerText,
    );
  }

  const worker = async () => {
    for (let request = unsentRequests.pop(); request; request = unsentRequests.pop()) {
      const failedRequest = request;
      await send(request).catch((error: unknown) => {
        // The other workers stop too.
        unsentRequests.length = 0;
        throw new Error(`Seed ${options.seed}: ${JSON.stringify(failedRequest, shortenText, 2)}`, { cause: error });
      });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT_REQUESTS }, worker));
  return { statuses, succeeded };
}

const shortenText = (_name: string, value: unknown): unknown =>
  typeof value === "string" && value.length > 300 ? `${value.slice(0, 300)}… (${value.length})` : value;

/** Returns the log lines of the request. */
async function readLogLines(service: Service, headers: Headers): Promise<string> {
  const id = headers.get("x-request-id");
  if (id === null) return "It never reached the service: the host itself failed.";
  return await service.hosts[0]!.waitForLine((line) => line.includes(id));
}

/** Returns the header of the request's sender, with a new token each time, because a request can revoke its token. */
async function authorization(service: Service, as: GeneratedRequest["as"]): Promise<Record<string, string>> {
  if (as === "nobody") return {};
  const token = as === "administrator" ? await makeToken(service, "admin") : "made.up.token";
  return { Authorization: `Bearer ${token}` };
}

/**
 * Runs a scan of the service's simulated company, and returns ids for path parameters. The administrator is not among the users,
 * because requests could delete or change the user that sends them.
 */
export async function readExistingIds(service: Service): Promise<ExistingIds> {
  await createUsers(service, [{ username: "spare", password: "a spare user's password", role: "user" }]);
  const { scanId } = await service.scan({ mode: "full" });
  const assets = await service.listAll("/api/assets/discovery/assets");
  return {
    scan_id: [scanId],
    asset_id: assets.map(({ id }: { id: string }) => id),
    user_id: ["spare"],
    subscription_id: [...new Set(assets.map(({ subscriptionId }: { subscriptionId: string }) => subscriptionId))],
  };
}
