import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { createLicensing } from "../../shared/licensing/licensing.ts";
import { systemClock } from "../../shared/platform/runtime.ts";

// Tests of the vendor's command line tool that creates license keys and issues licenses.

const COMMAND = fileURLToPath(new URL("../../functions/commands/licence.ts", import.meta.url));
const TENANT = "0b9f8a7e-1111-4222-8333-944455556666";
const folder = mkdtempSync(path.join(tmpdir(), "licence-"));
const file = path.join(folder, "key.json");
afterAll(() => rmSync(folder, { recursive: true }));

const run = (...args: string[]) =>
  execFileSync(process.execPath, [COMMAND, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();

test("the license command creates a key pair and issues valid licenses with it", async () => {
  const publicKey = JSON.parse(run("keys", "--out", file, "--kid", "mine"));
  expect(Object.keys(publicKey)).toEqual(["kid", "x"]);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const license = run(
    "issue",
    "--key",
    file,
    "--tier",
    "pro",
    "--customer",
    "Contoso",
    "--days",
    "90",
    "--tenant",
    TENANT,
  );
  const config = { LICENSE_KEY: license, AZURE_TENANT_ID: TENANT };
  const status = await createLicensing({ config, clock: systemClock, keys: [publicKey] }).status();
  // Only whole days count. The first of the 90 days has begun.
  expect(status).toMatchObject({ tier: "pro", valid: true, customer: "Contoso", daysLeft: 89 });
});

test("the license command does not overwrite a key file", () => {
  const originalContent = readFileSync(file, "utf8");
  const { status, stderr } = spawnSync(process.execPath, [COMMAND, "keys", "--out", file], { encoding: "utf8" });
  expect(status).toBe(1);
  expect(stderr).toContain("EEXIST");
  expect(readFileSync(file, "utf8")).toBe(originalContent);
});

test.each<[string, (key: object) => string]>([
  ["is cut off", (key) => JSON.stringify(key).slice(0, -20)],
  ["is not JSON", () => "planted-secret-of-another-file"],
  ["contains a key of another type", (key) => JSON.stringify({ ...key, crv: "X25519" })],
  ["contains an invalid private key", (key) => JSON.stringify({ ...key, d: "planted-secret-of-another-file" })],
])("the license command rejects a key file that %s and prints nothing of its content", (_description, change) => {
  const key = JSON.parse(readFileSync(file, "utf8"));
  const brokenFile = path.join(folder, "broken.json");
  writeFileSync(brokenFile, change(key));
  const args = ["issue", "--key", brokenFile, "--tier", "pro", "--customer", "Contoso", "--days", "90"];
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, ...args], { encoding: "utf8" });
  expect([status, stdout]).toEqual([2, ""]);
  expect(stderr).toContain("broken.json is not a private key");
  for (const part of ["planted", key.d.slice(0, 8), key.x.slice(0, 8), "crv", "    at "])
    expect(stderr).not.toContain(part);
});
