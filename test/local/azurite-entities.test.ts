import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { expect, test } from "vitest";
import { keepRowsAsTheyCome } from "../../infra/local/azurite-entities.ts";
import { readHeadersOnce } from "../../infra/local/azurite-requests.ts";
import { SEED } from "../support/cases.ts";

type Properties = Record<string, unknown>;
interface Entity {
  PartitionKey: string;
  RowKey: string;
  lastModifiedTime: string;
  properties: Properties;
}
type Entities = Parameters<typeof keepRowsAsTheyCome>[0];
interface Handler {
  checkProperties(context: unknown, properties: Properties): void;
}
interface Headers {
  header(name: string): string | undefined;
  count(): number;
  headerKeys(): string[];
}

const require = createRequire(import.meta.url);
const open = <T>(path: string): T => require(`azurite/dist/src/table/${path}.js`) as T;
const { NormalizedEntity: Plain } = open<Entities>("entity/NormalizedEntity");
const { default: PlainHandler } = open<{ default: new () => Handler }>("handlers/TableHandler");

/** When all that nothing holds any more is collected. */
function heldBytes(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** What came of it, or of what class and status its error is. */
function outcome<T>(work: () => T): unknown {
  try {
    return work();
  } catch (error) {
    const { name, statusCode, storageErrorCode } = error as Error & { statusCode?: number; storageErrorCode?: string };
    return { name, statusCode, storageErrorCode };
  }
}

const NAMES = ["a", "ab", "b", "c_json", "Timestamp", "toString", "hasOwnProperty", "RowKey", "odata.etag"];
const VALUES = [1, 1.5, -0, 2 ** 40, true, "", "text", "ä", "NaN", "7", "2026-11-25T10:00:00Z", null, { a: 1 }, [1]];
const LONG = [32 * 1024, 32 * 1024 + 1, 88 * 1024].map((length) => "A".repeat(length));
const TYPES = [
  "Edm.Double",
  "Edm.Binary",
  "Edm.Int64",
  "Edm.String",
  "Edm.Boolean",
  "Edm.DateTime",
  "Edm.Guid",
  "Other",
];

const name = fc.constantFrom(...NAMES);
const type = fc.oneof(fc.constantFrom("Edm.Double", "Edm.Binary"), fc.constantFrom(...TYPES));
const value = fc.oneof({ weight: 9, arbitrary: fc.constantFrom(...VALUES) }, fc.constantFrom(...LONG));
type Members = [name: string, value: unknown][];
const members: fc.Arbitrary<Members> = fc.oneof(
  { weight: 3, arbitrary: fc.tuple(name, value).map((one): Members => [one]) },
  {
    weight: 4,
    arbitrary: fc.tuple(name, value, type).map(
      ([of, what, kind]): Members => [
        [of, what],
        [`${of}@odata.type`, kind],
      ],
    ),
  },
  { weight: 2, arbitrary: fc.tuple(name, type).map(([of, kind]): Members => [[`${of}@odata.type`, kind]]) },
);
const withPrototype = (properties: Properties, prototype: object | null): Properties =>
  Object.setPrototypeOf(properties, prototype);
const entity: fc.Arbitrary<Entity> = fc
  .record({
    PartitionKey: fc.constantFrom("p", ""),
    RowKey: fc.constantFrom("r", "r'"),
    /** Where the keys stand among the properties, and whether they are the row's. */
    keys: fc.oneof(
      { weight: 8, arbitrary: fc.constant("first") },
      fc.constantFrom("last", "apart", "turned", "none", "others"),
    ),
    properties: fc.array(members, { maxLength: 3 }),
    /** A request's `__proto__`, where Azurite puts its members into an object of its own. */
    prototype: fc.oneof({ weight: 8, arbitrary: fc.constant(Object.prototype) }, fc.constantFrom({ q: 1 }, null)),
    lastModifiedTime: fc.constantFrom("2026-11-25T10:00:00.1234567Z", "2026-11-25T10:00:00.1230000"),
  })
  .map(({ PartitionKey, RowKey, keys, properties, prototype, lastModifiedTime }) => {
    const own: Members = [
      ["PartitionKey", PartitionKey],
      ["RowKey", keys === "others" ? "another" : RowKey],
    ];
    const all = {
      first: [...own, ...properties.flat()],
      others: [...own, ...properties.flat()],
      last: [...properties.flat(), ...own],
      apart: [own[0]!, ...properties.flat(), own[1]!],
      turned: [...own.reverse(), ...properties.flat()],
      none: properties.flat(),
    }[keys as string]!;
    return { PartitionKey, RowKey, lastModifiedTime, properties: withPrototype(Object.fromEntries(all), prototype) };
  });

test("rows kept as they come are those that Azurite makes of them, in the same order, and it refuses the same", () => {
  const entities = { NormalizedEntity: Plain };
  class Handler extends PlainHandler {}
  keepRowsAsTheyCome(entities, { prototype: Handler.prototype as never });
  const handlers = [PlainHandler, Handler].map((of) => Object.create(of.prototype) as Handler);
  const counts = { asItCame: 0, madeAnew: 0, refused: 0, propertyRefused: 0 };
  fc.assert(
    fc.property(entity, (given) => {
      const [refused, alsoRefused] = handlers.map((handler) =>
        outcome(() => handler.checkProperties({ contextID: "test" }, given.properties)),
      );
      expect(alsoRefused).toEqual(refused);
      if (refused !== undefined) counts.propertyRefused++;

      const text = JSON.stringify(given.properties);
      const rows = [Plain, entities.NormalizedEntity].map((of) => {
        const { properties, ...rest } = structuredClone(given);
        const kept = {
          ...rest,
          properties: withPrototype(properties, Object.getPrototypeOf(given.properties)),
        } as never;
        const made = outcome(() => {
          const row = new of(kept).normalize();
          return `${JSON.stringify(row)} ${JSON.stringify(Object.getPrototypeOf(row.properties))}`;
        });
        const answer = () => new of(kept).toResponseString("application/json;odata=fullmetadata", {}, new Set(["a"]));
        return { made, answer: typeof made === "string" ? outcome(answer) : undefined };
      });
      expect(rows[1]).toEqual(rows[0]);
      const { made } = rows[0]!;
      if (typeof made !== "string") counts.refused++;
      else counts[made.includes(text.slice(0, -1)) ? "asItCame" : "madeAnew"]++;
    }),
    { seed: SEED, numRuns: 10_000 },
  );
  console.log(counts);
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(200);
});

test("headers of a transaction's requests that are read once are those that Azurite reads each time", () => {
  const { default: PlainOperation } = open<{ default: new (text: string) => { rawHeaders: string[] } }>(
    "batch/TableBatchOperation",
  );
  const { default: PlainHeaders } = open<{ default: new (lines: string[]) => Headers }>("batch/BatchRequestHeaders");
  class Operation extends PlainOperation {}
  class OnceHeaders extends PlainHeaders {}
  const operation = { default: Operation as typeof PlainOperation };
  readHeadersOnce({ operation, headers: { prototype: OnceHeaders.prototype as never } });
  const LINES = [
    "HTTP/1.1",
    "Accept: application/json;odata=minimalmetadata",
    "If-Match: *",
    'If-Match: W/"1"',
    "x",
    "",
  ];
  const seen = new Map<string, number>();
  const lines = fc.array(fc.constantFrom(...LINES), { maxLength: 3 });
  fc.assert(
    fc.property(lines, fc.constantFrom("\r\n", "\n"), (parts, end) => {
      const text = parts.join(end);
      seen.set(text, (seen.get(text) ?? 0) + 1);
      const plain = new PlainHeaders(new PlainOperation(text).rawHeaders);
      const once = new OnceHeaders(new operation.default(text).rawHeaders);
      expect([once.count(), once.headerKeys()]).toEqual([plain.count(), plain.headerKeys()]);
      for (const name of ["Accept", "if-match", "HTTP/1.1", "none"]) expect(once.header(name)).toBe(plain.header(name));
    }),
    { seed: SEED, numRuns: 2_000 },
  );
  expect([...seen.values()].filter((times) => times > 3).length).toBeGreaterThan(20);
});

test("of the headers that are read once no transaction is kept", () => {
  const { default: PlainOperation } = open<{ default: new (text: string) => { rawHeaders: string[] } }>(
    "batch/TableBatchOperation",
  );
  const operation = { default: class extends PlainOperation {} };
  readHeadersOnce({ operation, headers: { prototype: {} as never } });
  const BODY_BYTES = 1024 * 1024;
  const before = heldBytes();
  for (let number = 0; number < 100; number++) {
    const body = `Accept: application/json\r\nIf-Match: W/"${number}"\r\n\r\n${String(number % 10).repeat(BODY_BYTES)}`;
    expect(new operation.default(body.slice(0, body.indexOf("\r\n\r\n"))).rawHeaders).toHaveLength(2);
    // One whose body was taken for headers.
    expect(new operation.default(body).rawHeaders).toHaveLength(3);
  }
  expect(heldBytes() - before).toBeLessThan(10 * BODY_BYTES);
});
