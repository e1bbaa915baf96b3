import fc from "fast-check";
import { expect, test } from "vitest";
import { compareMerged, type Entry } from "../../shared/reconciliation/compare.ts";

/** Few keys and values, so that parts share keys and often agree with the combined partition. */
const row = fc.record({ key: fc.constantFrom(..."abcdefghij"), hash: fc.constantFrom("1", "2", undefined) });
const rows = fc.uniqueArray(row, { selector: ({ key }) => key, maxLength: 10 });

const sorted = (found: Pick<Entry, "key" | "hash">[]): Entry[] =>
  found.map((one) => ({ ...one, etag: "" })).sort((a, b) => (a.key < b.key ? -1 : 1));

async function* streamed(entries: Entry[]): AsyncGenerator<Entry> {
  for (const entry of entries) {
    await Promise.resolve();
    yield entry;
  }
}

test("the comparison equals one that sorts everything in memory", async () => {
  const reached = { agrees: 0, missing: 0, extra: 0, stale: 0, unreadable: 0, inSeveralParts: 0 };
  await fc.assert(
    fc.asyncProperty(rows, fc.array(rows, { maxLength: 6 }), async (whole, parts) => {
      const expected = [];
      for (const key of "abcdefghij") {
        const standing = whole.find((one) => one.key === key);
        const wanted = parts.flatMap((part) => part.filter((one) => one.key === key));
        if (!standing && wanted.length === 0) continue;
        const difference = !standing
          ? "missing"
          : standing.hash === undefined
            ? "unreadable"
            : wanted.length === 0
              ? "extra"
              : wanted.some(({ hash }) => hash === standing.hash)
                ? undefined
                : "stale";
        expected.push({ key, difference });
        reached[difference ?? "agrees"]++;
        if (wanted.length > 1) reached.inSeveralParts++;
      }
      const compared = compareMerged(
        streamed(sorted(whole)),
        parts.map((part) => streamed(sorted(part))),
      );
      const found = [];
      for await (const one of compared) found.push(one);
      expect(found).toEqual(expected);
    }),
    { numRuns: 300 },
  );
  for (const [kind, times] of Object.entries(reached)) expect(times, kind).toBeGreaterThan(50);
});

test("no more than a page of each part is requested before it is needed", async () => {
  let taken = 0;
  async function* endless(step: number): AsyncGenerator<Entry> {
    for (let at = 0; ; at += step) {
      taken++;
      yield { key: String(at).padStart(9, "0"), hash: "1", etag: "" };
    }
  }
  const compared = compareMerged(endless(1), [endless(2), endless(3), endless(1_000_000)]);
  for (let at = 0; at < 60; at++) await compared.next();
  await compared.return();
  expect(taken).toBeLessThan(60 + 30 + 20 + 10);
});
