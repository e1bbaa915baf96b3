import fc from "fast-check";
import { expect, test } from "vitest";
import { compareMerged, type Entry } from "../../shared/reconciliation/compare.ts";

/**
 * Tests of `compareMerged`, which compares a combined partition of a table with the partitions ("parts") from which it was
 * built: the partition of all assets with those of the subscriptions.
 */

/** Few keys and values, so that parts share keys and often agree with the combined partition. An undefined hash: unreadable. */
const row = fc.record({ key: fc.constantFrom(..."abcdefghij"), hash: fc.constantFrom("1", "2", undefined) });
const rows = fc.uniqueArray(row, { selector: ({ key }) => key, maxLength: 10 });

const sorted = (entries: Pick<Entry, "key" | "hash">[]): Entry[] =>
  entries.map((entry) => ({ ...entry, etag: "" })).sort((a, b) => (a.key < b.key ? -1 : 1));

async function* streamed(entries: Entry[]): AsyncGenerator<Entry> {
  for (const entry of entries) {
    await Promise.resolve();
    yield entry;
  }
}

test("the streamed comparison equals a simple comparison in memory", async () => {
  /** How often the random rows led to each result. */
  const resultCounts = { agrees: 0, missing: 0, extra: 0, stale: 0, unreadable: 0, inSeveralParts: 0 };
  await fc.assert(
    fc.asyncProperty(rows, fc.array(rows, { maxLength: 6 }), async (whole, parts) => {
      const expected = [];
      for (const key of "abcdefghij") {
        const wholeRow = whole.find((row) => row.key === key);
        const partRows = parts.flatMap((part) => part.filter((row) => row.key === key));
        if (!wholeRow && partRows.length === 0) continue;
        const difference = !wholeRow
          ? "missing"
          : wholeRow.hash === undefined
            ? "unreadable"
            : partRows.length === 0
              ? "extra"
              : partRows.some(({ hash }) => hash === wholeRow.hash)
                ? undefined
                : "stale";
        expected.push({ key, difference });
        resultCounts[difference ?? "agrees"]++;
        if (partRows.length > 1) resultCounts.inSeveralParts++;
      }
      const comparison = compareMerged(
        streamed(sorted(whole)),
        parts.map((part) => streamed(sorted(part))),
      );
      const results = [];
      for await (const result of comparison) results.push(result);
      expect(results).toEqual(expected);
    }),
    { numRuns: 300 },
  );
  for (const [kind, times] of Object.entries(resultCounts)) expect(times, kind).toBeGreaterThan(50);
});

test("entries are read from each part only as far as the comparison has advanced", async () => {
  let entriesRead = 0;
  async function* endless(step: number): AsyncGenerator<Entry> {
    for (let number = 0; ; number += step) {
      entriesRead++;
      yield { key: String(number).padStart(9, "0"), hash: "1", etag: "" };
    }
  }
  const comparison = compareMerged(endless(1), [endless(2), endless(3), endless(1_000_000)]);
  for (let result = 0; result < 60; result++) await comparison.next();
  await comparison.return();
  // 60 results need 60 entries of the combined partition, 30 and 20 of the first two parts, and a few that are read in advance.
  expect(entriesRead).toBeLessThan(60 + 30 + 20 + 10);
});
