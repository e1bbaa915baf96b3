import fc from "fast-check";
import { expect, test } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
import { MAX_ENTITY_BYTES } from "../../shared/platform/storage/limits.ts";
import { insert, type Operation, put, remove, replace } from "../../shared/platform/storage/operations.ts";
import { transactionBody, transactionParts } from "../../shared/platform/storage/transaction.ts";
import { SEED } from "../support/sampling.ts";

// The body of a transaction request. Its parts are precomputed in ASCII if that fits, otherwise in UTF-8.

const Thing = entity("Things", z.object({ name: z.string() }));
/** Escaped in ASCII (`\u00e4`, six bytes per character), this text exceeds the size of an entity, so it is sent in UTF-8. */
const TOO_LARGE_IN_ASCII = "ä".repeat(Math.ceil(MAX_ENTITY_BYTES / 6));

const text = fc.oneof(
  { weight: 20, arbitrary: fc.string({ unit: "binary", maxLength: 20 }) },
  fc.constant(TOO_LARGE_IN_ASCII),
  fc.constant("🎂\r\n--changeset_"),
);
const operation: fc.Arbitrary<Operation> = fc
  .record({ kind: fc.nat(3), key: fc.constantFrom("a", "b'c", "n!secret!ä!kv", "🎂", ""), name: text })
  .map(({ kind, key, name }) =>
    [
      () => put(Thing, key, { name }),
      () => insert(Thing, key, { name }),
      () => replace(Thing, key, { name }, `W/"${"é".repeat(200)}"`),
      () => remove(Thing, key),
    ][kind]!(),
  );

test("a transaction's body contains all of its parts completely", () => {
  const partOf = transactionParts({
    table: "Things",
    partitionKey: "ä'b",
    address: `https://a.example/${"ö".repeat(30)}`,
  });
  const counts = { all: 0, utf8: 0 };
  fc.assert(
    fc.property(fc.array(operation, { minLength: 1, maxLength: 8 }), (operations) => {
      const parts = operations.map(partOf);
      const { contentType, body } = transactionBody(parts);
      const batch = contentType.slice("multipart/mixed; boundary=".length);
      const sent = Buffer.from(body).toString();
      const [, changeSet] = /boundary=(changeset_[0-9a-f-]{36})\r\n/.exec(sent)!;
      const expectedParts = parts.map(({ pieces }) => `--${changeSet}\r\n${pieces.join("")}\r\n`);
      expect(sent).toBe(
        `--${batch}\r\nContent-Type: multipart/mixed; boundary=${changeSet}\r\n\r\n${expectedParts.join("")}--${changeSet}--\r\n--${batch}--\r\n`,
      );
      counts.all++;
      if (sent.includes("ä".repeat(1000))) counts.utf8++;
    }),
    { seed: SEED, numRuns: 100 },
  );
  expect(counts.all).toBe(100);
  expect(counts.utf8).toBeGreaterThan(5);
});
