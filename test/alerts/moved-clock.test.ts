import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";

const PRELOAD = new URL("../../infra/local/moved-clock.mjs", import.meta.url).href;
const DAY_MS = 86_400_000;

const run = (script: string, file: string | undefined) =>
  JSON.parse(
    execFileSync(process.execPath, ["--import", PRELOAD, "-e", `console.log(JSON.stringify(${script}))`], {
      env: { ...process.env, NODE_OPTIONS: "", ...(file === undefined ? {} : { MOVED_CLOCK_FILE: file }) },
      encoding: "utf8",
    }),
  ) as unknown;

test("a process sees the moved time in all clock APIs, and explicit dates are unchanged", () => {
  const folder = mkdtempSync(join(tmpdir(), "moved-clock-"));
  const file = join(folder, "offset");
  writeFileSync(file, String(40 * DAY_MS));
  const seen = run(
    `[Date.now(), new Date().getTime(), Date.parse(Date()), new Date(5).getTime(), new (class extends Date {})().getTime(),
      new Date() instanceof Date, new Date().constructor === Date, Date.UTC(2026, 0, 1), structuredClone(new Date(7)) instanceof Date]`,
    file,
  ) as number[];
  const expected = Date.now() + 40 * DAY_MS;
  for (const at of [0, 1, 2, 4]) expect(Math.abs(seen[at]! - expected)).toBeLessThan(60_000);
  expect([seen[3], ...seen.slice(5)]).toEqual([5, true, true, Date.UTC(2026, 0, 1), true]);
  rmSync(folder, { recursive: true });
});

test("without a file or an offset, the time is not moved", () => {
  for (const file of [undefined, join(tmpdir(), "no-such-file")]) {
    expect(Math.abs((run("Date.now()", file) as number) - Date.now())).toBeLessThan(60_000);
  }
});

test("a running process applies changes of the file", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moved-clock-"));
  const file = join(folder, "offset");
  const child = spawn(
    process.execPath,
    ["--import", PRELOAD, "-e", "process.stdin.on('data', () => console.log(Date.now()))"],
    { env: { ...process.env, NODE_OPTIONS: "", MOVED_CLOCK_FILE: file } },
  );
  const lines = createInterface({ input: child.stdout });
  const ask = async () => {
    child.stdin.write("?");
    return Number((await once(lines, "line"))[0]);
  };
  expect(Math.abs((await ask()) - Date.now())).toBeLessThan(60_000);
  writeFileSync(`${file}.new`, String(-3 * DAY_MS));
  renameSync(`${file}.new`, file);
  await expect.poll(async () => Math.abs((await ask()) + 3 * DAY_MS - Date.now())).toBeLessThan(60_000);
  child.kill();
  await once(child, "exit");
  rmSync(folder, { recursive: true });
});
