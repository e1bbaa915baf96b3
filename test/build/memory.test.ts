import { execFileSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";

const MEMORY = path.resolve(import.meta.dirname, "../../functions/memory.ts");

/** Answers that are done with after 2,000 others, as of requests under way; more of them live on than the space begins with. */
const WORK = `
  import { getHeapSpaceStatistics } from "node:v8";
  await import(process.env.MEMORY);
  const answer = JSON.stringify(Array.from({ length: 25 }, (_, at) => ({ id: "secret-" + at, tags: { owner: "ops" } })));
  const underWay = [];
  let most = 0;
  for (let at = 0; at < 10_000; at++) {
    underWay[at % 2_000] = JSON.parse(answer);
    if (at % 20 === 0) await new Promise(setImmediate);
    const { space_size } = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
    most = Math.max(most, space_size);
  }
  console.log(most);
`;

test("the space for new objects grows, but to no more than 32 MB", () => {
  const most = Number(
    execFileSync(process.execPath, ["--input-type=module", "-e", WORK], {
      encoding: "utf8",
      env: { ...process.env, MEMORY },
    }),
  );
  expect(most / 1024 / 1024).toBe(32);
});
