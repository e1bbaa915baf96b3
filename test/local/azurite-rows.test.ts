import { createRequire } from "node:module";
import { expect, test } from "vitest";
import { removeMessagesBesides } from "../../infra/local/azurite-messages.ts";
import { findRowsByKeys } from "../../infra/local/azurite-rows.ts";
import { SEED } from "../support/cases.ts";

/** Azurite's store of rows, as far as this test uses it. */
interface Store {
  init(): Promise<void>;
  createTable(context: object, table: object): Promise<void>;
  insertTableEntity(context: object, table: string, account: string, entity: object, batch: string): Promise<unknown>;
  insertOrUpdateTableEntity(
    ...of: [object, string, string, entity: object, ifMatch: undefined, batch: string]
  ): Promise<unknown>;
  insertOrMergeTableEntity(
    ...of: [object, string, string, entity: object, ifMatch: undefined, batch: string]
  ): Promise<unknown>;
  deleteTableEntity(
    ...of: [object, string, string, partition: string, row: string, etag: string, batch: string]
  ): Promise<void>;
  endBatchTransaction(account: string, table: string, batch: string, context: object, ended: boolean): Promise<void>;
  queryTableEntities(
    ...of: [object, string, string, query: object, nextPartition?: string, nextRow?: string]
  ): Promise<[rows: unknown[], ...next: (string | undefined)[]]>;
}
/** Where it keeps the texts of messages. */
interface Texts {
  init(): Promise<void>;
  updateExtent(extent: object): Promise<void>;
  deleteExtent(id: string): Promise<void>;
  listExtents(): Promise<[extents: { id: string }[], next: unknown]>;
}
const require = createRequire(import.meta.url);
const load = <T>(path: string) =>
  (require(`azurite/dist/src/${path}.js`) as { default: new (file: string, inMemory: boolean) => T }).default;
const Plain = load<Store>("table/persistence/LokiTableMetadataStore");
class Keyed extends Plain {}
findRowsByKeys({ prototype: Keyed.prototype as never });

/** Keys that a number, a quote or a language would put into another order. */
const KEYS = ["a", "a'b", "9", "10", "1e1", "", "ä", "b|c", "B", "~", "0x10"];
const context = { contextID: "test" };

test("found by keys, Azurite's rows are those that its own search finds", async () => {
  const stores = [new Plain("plain", true), new Keyed("keyed", true)];
  for (const store of stores) {
    await store.init();
    await store.createTable(context, { account: "one", table: "things" });
  }
  const answers = new Map<string, number>();
  let seed = SEED;
  console.log(`seed ${seed}`);
  const below = (count: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((seed / 2 ** 31) * count);
  };
  const key = () => KEYS[below(KEYS.length)]!;
  const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;

  for (let step = 0; step < 800; step++) {
    const [kind, partition, row, other] = [below(6), key(), key(), key()];
    const [lower, upper, isBatch] = [below(4), below(4), below(3) === 0];
    const filter = [
      `PartitionKey eq ${quoted(partition)}`,
      ...(lower < 3 ? [`RowKey ${["ge", "gt", "ge"][lower]} ${quoted(row)}`] : []),
      ...(upper < 3 ? [`RowKey ${["lt", "le", "lt"][upper]} ${quoted(other)}`] : []),
    ].join(" and ");
    const act = async (store: Store) => {
      const entity = () => ({ PartitionKey: partition, RowKey: row, eTag: `${step}`, properties: { [row]: step } });
      const batch = isBatch ? "batch" : "";
      if (kind === 0) await store.insertTableEntity(context, "things", "one", entity(), batch);
      if (kind === 1) await store.insertOrUpdateTableEntity(context, "things", "one", entity(), undefined, batch);
      if (kind === 2) await store.insertOrMergeTableEntity(context, "things", "one", entity(), undefined, batch);
      if (kind === 3) await store.deleteTableEntity(context, "things", "one", partition, row, "*", batch);
      // Every other transaction fails in the end, and takes back what it did.
      if (isBatch) await store.endBatchTransaction("one", "things", batch, context, step % 2 === 0);
      const pages = [];
      let next: (string | undefined)[] = [];
      do {
        const queryOptions = kind === 5 ? { top: 40 } : { top: 3, filter };
        const [rows, ...after] = await store.queryTableEntities(
          context,
          "one",
          "things",
          queryOptions,
          ...(next as []),
        );
        pages.push(rows.map((one) => ({ ...(one as object), $loki: 0, meta: 0 })));
        next = after;
      } while (next.some((part) => part !== undefined));
      return pages;
    };
    const [plain, keyed] = await Promise.all(
      stores.map((store) => act(store).catch((error: { statusCode: number }) => error.statusCode)),
    );
    expect(keyed, `step ${step}: ${filter}`).toEqual(plain);
    const answer = typeof plain === "number" ? `${kind} ${plain}` : `${kind}`;
    answers.set(answer, (answers.get(answer) ?? 0) + 1);
  }
  // Each of them, and those refused because the row is there or not.
  for (const answer of ["0", "0 409", "1", "2", "3", "3 404", "4", "5"]) expect(answers.get(answer)).toBeGreaterThan(5);
});

test("the texts of messages that are gone are removed while Azurite goes on answering, and no others", async () => {
  class PlainTexts extends load<Texts>("common/persistence/LokiExtentMetadataStore") {}
  removeMessagesBesides({ prototype: PlainTexts.prototype as never });
  const texts = new PlainTexts("texts", true);
  await texts.init();
  const ids = Array.from({ length: 200 }, (_, at) => `text ${(at * 77) % 200}`);
  for (const id of ids) await texts.updateExtent({ id, locationId: id, path: id, size: 1, lastModifiedInMS: 1 });
  let answered = 0;
  const answer = () => {
    answered++;
    answering = setImmediate(answer);
  };
  let answering = setImmediate(answer);
  for (const id of ids.slice(20)) await texts.deleteExtent(id);
  await texts.deleteExtent("none");
  clearImmediate(answering);
  expect((await texts.listExtents())[0].map(({ id }) => id)).toEqual(ids.slice(0, 20));
  expect(answered).toBeGreaterThan(ids.length / 2);
});
