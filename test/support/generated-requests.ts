/**
 * Requests generated from the OpenAPI document: valid, nearly valid and hostile ones. The same seed generates the same
 * requests. The service must answer all of them as documented, and never with 500.
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
  /** The role whose token the request sends. */
  as: "administrator" | "nobody" | "stranger";
}

/** Existing values by the name of the path parameter. */
export type Known = Record<string, readonly string[]>;

/** Valid requests to these operations start work that takes seconds, so few of them are valid. */
const LONG = new Set(["startScan"]);

/** Without NUL, which the platform's web server rejects in paths. */
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

/** Half of a surrogate pair and NUL are possible in JSON, but not in a path. */
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

/** Returns values that match the schema. */
function described(schema: Schema, document: Description): fc.Arbitrary<unknown> {
  const again = (inner: Schema) => described(inner, document);
  if (schema.$ref) return again(document.components.schemas[schema.$ref.split("/").at(-1)!]!);
  if ("const" in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return fc.oneof(...choices.map(again));
  if (schema.allOf) {
    return fc.tuple(...schema.allOf.map(again)).map((parts) => Object.assign({}, ...(parts as object[])) as unknown);
  }
  if (Array.isArray(schema.type)) return fc.oneof(...schema.type.map((type) => again({ ...schema, type })));
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
      return fc.array(again(schema.items ?? {}), {
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

/** The limits, values next to them, and some in between. */
function wholeNumber({ minimum = -1000, maximum = 1000 }: Schema): fc.Arbitrary<number> {
  const ends = [minimum, minimum + 1, maximum - 1, maximum].filter((value) => value >= minimum && value <= maximum);
  return fc.oneof(fc.constantFrom(...ends), fc.integer({ min: minimum, max: maximum }));
}

function members({ properties = {}, required = [] }: Schema, document: Description): fc.Arbitrary<unknown> {
  const values = Object.entries(properties).map(([name, schema]) => [name, described(schema, document)] as const);
  return fc.record(Object.fromEntries(values), { requiredKeys: required.filter((name) => name in properties) });
}

/** Changes one thing of a valid value: adds, removes or retypes a member, or adds its other spelling. */
function spoiled(good: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc
    .tuple(good, fc.nat(), fc.constantFrom("more", "less", "other", "twice"), hostileMember, hostileValue)
    .map(([value, index, how, name, junk]) => {
      if (typeof value !== "object" || value === null || Array.isArray(value)) return junk;
      const entries = Object.entries(value);
      const at = entries.length === 0 ? 0 : index % entries.length;
      if (how === "more" || entries.length === 0) entries.push([name, junk]);
      else if (how === "less") entries.splice(at, 1);
      else if (how === "other") entries[at] = [entries[at]![0], junk];
      else entries.push([entries[at]![0].replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), junk]);
      return Object.fromEntries(entries);
    });
}

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
  const good = described(schema, document);
  return fc.oneof(
    { weight: LONG.has(operation.operationId) ? 1 : 10, arbitrary: good.map(json) },
    { weight: 14, arbitrary: spoiled(good).map(json) },
    { weight: 2, arbitrary: hostileValue.map(json) },
    { weight: 2, arbitrary: brokenBody },
    { weight: 1, arbitrary: otherBody },
    { weight: 1, arbitrary: none },
  );
}

const escaped = (value: unknown): string => encodeURIComponent(String(value).toWellFormed().replaceAll("\0", ""));

function paths(template: string, operation: Operation, document: Description, known: Known): fc.Arbitrary<string> {
  const parts = template.split("/").map((part): fc.Arbitrary<string> => {
    const name = /^\{(.+)\}$/.exec(part)?.[1];
    if (name === undefined) return fc.constant(part);
    const schema = operation.parameters?.find((one) => one.in === "path" && one.name === name)?.schema ?? {};
    const values = [described(schema, document), hostileText];
    if (known[name]?.length) values.unshift(fc.constantFrom(...known[name]));
    return fc.oneof(...values).map(escaped);
  });
  const suffix = fc.constantFrom("/", "//", "/..", "/.", "/%2F", "%", ".json", ";a=b", "/extra");
  const end = fc.oneof({ weight: 30, arbitrary: fc.constant("") }, { weight: 1, arbitrary: suffix });
  return fc.tuple(fc.tuple(...parts), end).map(([filled, odds]) => filled.join("/") + odds);
}

function queries(operation: Operation, document: Description): fc.Arbitrary<string> {
  const declared = (operation.parameters ?? []).filter((one) => one.in === "query");
  const unknown = fc.tuple(hostileText, hostileText);
  const one = declared.map(({ name, schema }) => fc.tuple(fc.constant(name), described(schema, document)));
  const wrong = declared.map(({ name }) => fc.tuple(fc.constant(name), hostileText));
  const pair: fc.Arbitrary<[string, unknown]> =
    declared.length === 0
      ? unknown
      : fc.oneof(
          { weight: 10, arbitrary: fc.oneof(...one) },
          { weight: 5, arbitrary: fc.oneof(...wrong) },
          { weight: 1, arbitrary: unknown },
        );
  const pairs = fc.array(pair, { maxLength: 4 });
  return fc
    .oneof(
      { weight: declared.length === 0 ? 1 : 9, arbitrary: pairs },
      { weight: declared.length === 0 ? 9 : 1, arbitrary: fc.constant([]) },
    )
    .map((list) => list.map(([name, value]) => `${escaped(name)}=${escaped(value)}`).join("&"));
}

/** ASCII only: the platform fails on characters beyond Latin-1 before it calls the service. */
const oddHeaders: fc.Arbitrary<Record<string, string>> = fc.oneof(
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
  known: Known,
): fc.Arbitrary<GeneratedRequest> {
  const operation = document.paths[template]![method]!;
  return fc
    .record({
      method: fc.oneof(
        { weight: 19, arbitrary: fc.constant(method.toUpperCase()) },
        { weight: 1, arbitrary: fc.constantFrom(...METHODS) },
      ),
      path: paths(template, operation, document, known),
      query: queries(operation, document),
      body: bodies(operation, document),
      headers: oddHeaders,
      as: fc.oneof(
        { weight: 17, arbitrary: fc.constant("administrator" as const) },
        { weight: 3, arbitrary: fc.constantFrom("nobody" as const, "stranger" as const) },
      ),
    })
    .map(({ query, body, ...rest }) => {
      const sent = body.text !== undefined && rest.method !== "GET" && rest.method !== "HEAD";
      return {
        operation: operation.operationId,
        method: rest.method,
        as: rest.as,
        path: query === "" ? rest.path : `${rest.path}?${query}`,
        headers: { ...rest.headers, ...(sent && body.type ? { "Content-Type": body.type } : {}) },
        ...(sent ? { body: body.text! } : {}),
      };
    });
}

/** Returns the requests of a seed. */
export function generatedRequests(
  document: Description,
  options: { seed: number; count: number; known: Known },
): GeneratedRequest[] {
  const all = Object.entries(document.paths).flatMap(([template, methods]) =>
    Object.keys(methods).map((method) => requests(template, method, document, options.known)),
  );
  return fc.sample(fc.oneof(...all), { seed: options.seed, numRuns: options.count });
}

/** Number of concurrent requests. */
const PARALLEL = 8;

/**
 * Sends the requests and compares each response with the OpenAPI document.
 *
 * @returns The number of responses by status, and the operations that succeeded at least once.
 * @throws {Error} With the seed and the whole request, at the first 500 or undocumented response.
 */
export async function sendGenerated(
  service: Service,
  options: { seed: number; count: number; known: Known },
): Promise<{ statuses: Record<string, number>; succeeded: Set<string> }> {
  const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as Description;
  const conformance = new Conformance(document as unknown as ConstructorParameters<typeof Conformance>[0]);
  const waiting = generatedRequests(document, options);
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
    const answered = await answer.text();
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
    if (answer.status < 300) succeeded.add(request.operation);
    if (answer.status === 500)
      throw new Error(`It answered 500: ${answered}\n${await logged(service, answer.headers)}`);
    if (request.method === "HEAD") return;
    conformance.check(
      request.method,
      new URL(address).pathname,
      answer.status,
      answer.headers.get("content-type"),
      answered,
    );
  }

  const worker = async () => {
    for (let request = waiting.pop(); request; request = waiting.pop()) {
      const one = request;
      await send(one).catch((error: unknown) => {
        waiting.length = 0;
        throw new Error(`Seed ${options.seed}: ${JSON.stringify(one, shortened, 2)}`, { cause: error });
      });
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return { statuses, succeeded };
}

const shortened = (_name: string, value: unknown): unknown =>
  typeof value === "string" && value.length > 300 ? `${value.slice(0, 300)}… (${value.length})` : value;

/** Returns the log lines of the request. */
async function logged(service: Service, headers: Headers): Promise<string> {
  const id = headers.get("x-request-id");
  if (id === null) return "It never reached the service: the host itself failed.";
  return await service.hosts[0]!.line((line) => line.includes(id));
}

/** Returns a new token each time, because a request can end its session. */
async function authorization(service: Service, as: GeneratedRequest["as"]): Promise<Record<string, string>> {
  if (as === "nobody") return {};
  const token = as === "administrator" ? await makeToken(service, "admin") : "made.up.token";
  return { Authorization: `Bearer ${token}` };
}

/** Returns values for path parameters, after a scan of the service's small company. The administrator is not included. */
export async function knownValues(service: Service): Promise<Known> {
  await createUsers(service, [{ username: "spare", password: "a spare user's password", role: "user" }]);
  const { scanId } = await service.scan({ mode: "full" });
  const assets = await service.all("/api/assets/discovery/assets");
  return {
    scan_id: [scanId],
    asset_id: assets.map(({ id }: { id: string }) => id),
    user_id: ["spare"],
    subscription_id: [...new Set(assets.map(({ subscriptionId }: { subscriptionId: string }) => subscriptionId))],
  };
}
