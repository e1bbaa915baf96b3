import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";

/**
 * Tests of moved-clock.mjs, which local runs of the service load to simulate another time. It adds an offset in milliseconds
 * from the file `MOVED_CLOCK_FILE` to the clock of the process.
 */

const PRELOAD = new URL("../../infra/local/moved-clock.mjs", import.meta.url).href;
const DAY_MS = 86_400_000;

const evaluateWithMovedClock = (script: string, file: string | undefined) =>
  JSON.parse(
    execFileSync(process.execPath, ["--import", PRELOAD, "-e", `console.log(JSON.stringify(${script}))`], {
      env: { ...process.env, NODE_OPTIONS: "", ...(file === undefined ? {} : { MOVED_CLOCK_FILE: file }) },
      encoding: "utf8",
    }),
  ) as unknown;

test("the offset applies to all ways to read the current time, and not to dates with an explicit time", () => {
  const folder = mkdtempSync(join(tmpdir(), "moved-clock-"));
  const file = join(folder, "offset");
  writeFileSync(file, String(40 * DAY_MS));
  const values = evaluateWithMovedClock(
    `[Date.now(), new Date().getTime(), Date.parse(Date()), new Date(5).getTime(), new (class extends Date {})().getTime(),
      new Date() instanceof Date, new Date().constructor === Date, Date.UTC(2026, 0, 1), structuredClone(new Date(7)) instanceof Date]`,
    file,
  ) as number[];
  const expected = Date.now() + 40 * DAY_MS;
  // The values 0, 1, 2 and 4 are current times.
  for (const index of [0, 1, 2, 4]) expect(Math.abs(values[index]! - expected)).toBeLessThan(60_000);
  expect([values[3], ...values.slice(5)]).toEqual([5, true, true, Date.UTC(2026, 0, 1), true]);
  rmSync(folder, { recursive: true });
});

test("without a file or an offset, the time is not moved", () => {
  for (const file of [undefined, join(tmpdir(), "no-such-file")]) {
    expect(Math.abs((evaluateWithMovedClock("Date.now()", file) as number) - Date.now())).toBeLessThan(60_000);
  }
});

test("a running process applies a changed offset", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moved-clock-"));
  const file = join(folder, "offset");
  const child = spawn(
    process.execPath,
    ["--import", PRELOAD, "-e", "process.stdin.on('data', () => console.log(Date.now()))"],
    { env: { ...process.env, NODE_OPTIONS: "", MOVED_CLOCK_FILE: file } },
  );
  const lines = createInterface({ input: child.stdout });
  const readClock = async () => {
    child.stdin.write("?");
    return Number((await once(lines, "line"))[0]);
  };
  expect(Math.abs((await readClock()) - Date.now())).toBeLessThan(60_000);
  writeFileSync(`${file}.new`, String(-3 * DAY_MS));
  renameSync(`${file}.new`, file);
  await expect.poll(async () => Math.abs((await readClock()) + 3 * DAY_MS - Date.now())).toBeLessThan(60_000);
  child.kill();
  await once(child, "exit");
  rmSync(folder, { recursive: true });
});
