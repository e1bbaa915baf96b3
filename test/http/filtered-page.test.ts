import { expect, test } from "vitest";
import { filteredPage } from "../../shared/platform/http/filtered-page.ts";

/*
 * `filteredPage` returns a page of the rows that match a filter which storage can't evaluate. It reads rows in chunks of 1,000.
 * It stops a call after 10,000 rows with a cursor, so that no call takes too long.
 */

interface Row {
  rowKey: string;
  number: number;
}
const rows: Row[] = Array.from({ length: 25_000 }, (_, number) => ({
  rowKey: String(number).padStart(5, "0"),
  number,
}));

/** Simulates a table of the first `length` rows, which is read in pages, and counts the rows that are read. */
function simulateTable(length: number) {
  const read = { rows: 0 };
  async function* pages({ pageSize, after = "" }: { pageSize: number; after?: string }) {
    const firstIndex = rows.findIndex(({ rowKey }) => rowKey > after);
    if (firstIndex < 0) return;
    for (let index = firstIndex; index < length; index += pageSize) {
      const page = rows.slice(index, Math.min(length, index + pageSize));
      read.rows += page.length;
      yield page;
    }
  }
  return { read, pages };
}

/**
 * Calls `filteredPage` with each returned cursor until there is none.
 *
 * @returns One text per call, for example `3 of 3+, 10000 read`: items of the page, total (`+`: at least), and rows read; and
 * the numbers of all returned rows.
 */
async function readAllPages(
  length: number,
  { limit, offset = 0 }: { limit: number; offset?: number },
  matches?: (row: Row) => boolean,
) {
  const calls: string[] = [];
  const numbers: number[] = [];
  let cursor: string | undefined;
  do {
    const { read, pages } = simulateTable(length);
    const request = { limit, offset: cursor === undefined ? offset : 0, cursor };
    const page = await filteredPage(request, { filters: "f", matches, pages });
    const { items, total, totalAtLeast, nextCursor } = page;
    calls.push(`${items.length} of ${total ?? `${totalAtLeast}+`}, ${read.rows} read`);
    numbers.push(...items.map(({ number }) => number));
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  return { calls, numbers };
}
/** Returns all multiples of `step` among the numbers of the first `length` rows. */
const multiplesOf = (step: number, length = rows.length) =>
  rows.slice(0, length).flatMap(({ number }) => (number % step === 0 ? [number] : []));

test("a call searches at most ten thousand rows for rare matches, and the next call continues", async () => {
  const { calls, numbers } = await readAllPages(25_000, { limit: 10 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["3 of 3+, 10000 read", "2 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(multiplesOf(4_000));
});

// Matches are the numbers 0, 4000, …, 24000. The offset skips four of them. The first call finds only three in its 10,000 rows.
test("matches of the offset that one call did not reach are skipped by the next call", async () => {
  const { calls, numbers } = await readAllPages(25_000, { limit: 2, offset: 4 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["0 of 3+, 10000 read", "1 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(multiplesOf(4_000).slice(4));
});

// Matches are 0, 500, …, 4500. A cursor continues at the first match that did not fit into the page. The second call therefore
// reads three chunks from row 2000 on: the matches up to 3500, and then 4000, at which it stops. The third call reads the chunk
// from row 4000 on. Calls with a cursor don't count the matches of earlier calls, so they report only a lower bound (`+`).
test("the first call counts all matches, and later calls stop at the end of their page", async () => {
  const { calls, numbers } = await readAllPages(5_000, { limit: 4 }, ({ number }) => number % 500 === 0);
  expect(calls).toEqual(["4 of 10, 5000 read", "4 of 5+, 3000 read", "2 of 2+, 1000 read"]);
  expect(numbers).toEqual(multiplesOf(500, 5_000));
});

test("without a filter, a call reads one row beyond its page, to know whether another page follows", async () => {
  const { calls, numbers } = await readAllPages(7, { limit: 3, offset: 1 });
  expect(calls).toEqual(["3 of 5+, 5 read", "3 of 3+, 3 read"]);
  expect(numbers).toEqual([1, 2, 3, 4, 5, 6]);
});

test("a cursor of other filters is rejected", async () => {
  const { pages } = simulateTable(7);
  const page = { limit: 3, offset: 0, cursor: undefined };
  const { nextCursor } = await filteredPage(page, { filters: "one", matches: undefined, pages });
  await expect(
    filteredPage({ ...page, cursor: nextCursor! }, { filters: "other", matches: undefined, pages }),
  ).rejects.toMatchObject({ code: "invalidCursor" });
});
