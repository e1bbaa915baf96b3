import { expect, test } from "vitest";
import { filteredPage } from "../../shared/platform/http/filtered-page.ts";

interface Row {
  rowKey: string;
  number: number;
}
const rows: Row[] = Array.from({ length: 25_000 }, (_, number) => ({
  rowKey: String(number).padStart(5, "0"),
  number,
}));

/** Simulates a range of rows in pages and counts the rows that are read. */
function range(length: number) {
  const read = { rows: 0 };
  async function* pages({ pageSize, after = "" }: { pageSize: number; after?: string }) {
    let at = rows.findIndex(({ rowKey }) => rowKey > after);
    if (at < 0) return;
    for (; at < length; at += pageSize) {
      const page = rows.slice(at, Math.min(length, at + pageSize));
      read.rows += page.length;
      yield page;
    }
  }
  return { read, pages };
}

/** Pages through all rows by cursor. Returns each call's page, the number of rows read, and all returned numbers. */
async function walk(
  length: number,
  { limit, offset = 0 }: { limit: number; offset?: number },
  matches?: (row: Row) => boolean,
) {
  const calls: string[] = [];
  const numbers: number[] = [];
  let cursor: string | undefined;
  do {
    const { read, pages } = range(length);
    const request = { limit, offset: cursor === undefined ? offset : 0, cursor };
    const page = await filteredPage(request, { filters: "f", matches, pages });
    const { items, total, totalAtLeast, nextCursor } = page;
    calls.push(`${items.length} of ${total ?? `${totalAtLeast}+`}, ${read.rows} read`);
    numbers.push(...items.map(({ number }) => number));
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  return { calls, numbers };
}
const every = (step: number, from = 0, before = rows.length) =>
  rows.flatMap(({ number }) => (number >= from && number < before && number % step === 0 ? [number] : []));

test("rare matches are searched in ten thousand rows per call, and paging finds each match once", async () => {
  const { calls, numbers } = await walk(25_000, { limit: 10 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["3 of 3+, 10000 read", "2 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(every(4_000));
});

test("an offset that exceeds the rows of one call is continued by the next calls", async () => {
  const { calls, numbers } = await walk(25_000, { limit: 2, offset: 4 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["0 of 3+, 10000 read", "1 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(every(4_000).slice(4));
});

test("frequent matches are counted by the first call, and later calls stop at the end of their page", async () => {
  const { calls, numbers } = await walk(5_000, { limit: 4 }, ({ number }) => number % 500 === 0);
  expect(calls).toEqual(["4 of 10, 5000 read", "4 of 5+, 3000 read", "2 of 2+, 1000 read"]);
  expect(numbers).toEqual(every(500, 0, 5_000));
});

test("a range that covers the filter is read one row beyond the page", async () => {
  const { calls, numbers } = await walk(7, { limit: 3, offset: 1 });
  expect(calls).toEqual(["3 of 5+, 5 read", "3 of 3+, 3 read"]);
  expect(numbers).toEqual([1, 2, 3, 4, 5, 6]);
});

test("a cursor of other filters is rejected", async () => {
  const { pages } = range(7);
  const page = { limit: 3, offset: 0, cursor: undefined };
  const { nextCursor } = await filteredPage(page, { filters: "one", matches: undefined, pages });
  await expect(
    filteredPage({ ...page, cursor: nextCursor! }, { filters: "other", matches: undefined, pages }),
  ).rejects.toMatchObject({ code: "invalidCursor" });
});
