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

/** A range of so many rows, as storage gives it, and how many of them were read. */
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

/** A walk by cursor: what each call answers, how many rows it read, and the numbers of all rows it gave. */
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

test("what matches seldom is looked for in ten thousand rows a call, and all of it is found once", async () => {
  const { calls, numbers } = await walk(25_000, { limit: 10 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["3 of 3+, 10000 read", "2 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(every(4_000));
});

test("an offset that goes on beyond what a call looks through is kept to by the next ones", async () => {
  const { calls, numbers } = await walk(25_000, { limit: 2, offset: 4 }, ({ number }) => number % 4_000 === 0);
  expect(calls).toEqual(["0 of 3+, 10000 read", "1 of 2+, 10000 read", "2 of 2+, 5000 read"]);
  expect(numbers).toEqual(every(4_000).slice(4));
});

test("what matches often is counted whole by the first call, and later ones stop where their page is full", async () => {
  const { calls, numbers } = await walk(5_000, { limit: 4 }, ({ number }) => number % 500 === 0);
  expect(calls).toEqual(["4 of 10, 5000 read", "4 of 5+, 3000 read", "2 of 2+, 1000 read"]);
  expect(numbers).toEqual(every(500, 0, 5_000));
});

test("what the range serves whole is read no further than a row behind its page", async () => {
  const { calls, numbers } = await walk(7, { limit: 3, offset: 1 });
  expect(calls).toEqual(["3 of 5+, 5 read", "3 of 3+, 3 read"]);
  expect(numbers).toEqual([1, 2, 3, 4, 5, 6]);
});

test("a cursor of other filters is refused", async () => {
  const { pages } = range(7);
  const page = { limit: 3, offset: 0, cursor: undefined };
  const { nextCursor } = await filteredPage(page, { filters: "one", matches: undefined, pages });
  await expect(
    filteredPage({ ...page, cursor: nextCursor! }, { filters: "other", matches: undefined, pages }),
  ).rejects.toMatchObject({ code: "invalidCursor" });
});
