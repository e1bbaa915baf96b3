import { randomBytes } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { startTestCloud } from "./live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "./services.ts";

/** Tests of the keys that sign table rows. The keys are versions of a secret in the service's own vault. */

let cloud: Cloud;
let vault: ServiceKeyVault;
const createRowKeys = () => keyVaultRowKeys(vault, systemRandomness());

beforeAll(async () => {
  const live = await startTestCloud({ company: "small" });
  cloud = live.cloud;
  const identity = createIdentity(live.config);
  vault = createServiceKeyVault({ config: live.config, identity, log: recordingLog(), limits: SHORT_WAITS })!;
});
afterAll(() => cloud?.stop());
afterEach(() => {
  vi.restoreAllMocks();
  cloud.control.clearFaults();
  cloud.control.resetCounts();
});

test("a failed read of the key is repeated by the next call", async () => {
  const rowKeys = createRowKeys();
  cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" }, times: 1 });
  expect((await expectFailure(rowKeys.current())).code).toBe("accessDenied");
  expect((await rowKeys.current()).key).toHaveLength(32);
});

test("two processes use the same key and cache it", async () => {
  const [firstProcess, secondProcess] = [createRowKeys(), createRowKeys()];
  const first = await firstProcess.current();
  expect(await secondProcess.current()).toEqual(first);
  expect(await secondProcess.named(first.name)).toEqual(first.key);
  cloud.control.resetCounts();
  await secondProcess.current();
  for (let time = 0; time < 3; time++) expect(await secondProcess.named(first.name)).toEqual(first.key);
  expect(cloud.control.counts().total ?? 0).toBe(0);
});

test("a new version becomes the current key, and earlier versions remain available", async () => {
  const earlier = await createRowKeys().current();
  const name = await vault.writeSecret("row-signing", randomBytes(32).toString("base64"), "text/plain");
  const rowKeys = createRowKeys();
  expect((await rowKeys.current()).name).toBe(name);
  expect(await rowKeys.named(earlier.name)).toEqual(earlier.key);
});

test("invalid key names and values are rejected", async () => {
  for (const name of ["", "x", "../other", "0".repeat(32)]) expect(await createRowKeys().named(name)).toBeUndefined();
  await vault.writeSecret("row-signing", "short", "text/plain");
  expect((await expectFailure(createRowKeys().current())).code).toBe("badResponse");
});

test("a version that the vault did not have is requested again after a minute", async () => {
  await vault.writeSecret("row-signing", randomBytes(32).toString("base64"), "text/plain");
  const { name, key } = await createRowKeys().current();
  const rowKeys = createRowKeys();
  // For example, a vault that was restored from a backup, and whose newest versions followed later.
  cloud.control.addFault({
    match: { operation: "keyvault.getSecret" },
    action: { kind: "fail", status: 404 },
  });
  expect(await rowKeys.named(name)).toBeUndefined();
  cloud.control.clearFaults();
  cloud.control.resetCounts();
  expect(await rowKeys.named(name)).toBeUndefined();
  expect(cloud.control.counts().total ?? 0).toBe(0);
  const now = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => now() + 61_000);
  expect(await rowKeys.named(name)).toEqual(key);
});

test("names that no key has cost the vault 20 requests a minute at most, however many rows have them", async () => {
  const rowKeys = createRowKeys();
  await vault.writeSecret("row-signing", randomBytes(32).toString("base64"), "text/plain");
  const current = await rowKeys.current();
  expect(await rowKeys.named(current.name)).toEqual(current.key);
  cloud.control.resetCounts();
  for (let count = 0; count < 50; count++) expect(await rowKeys.named(randomBytes(16).toString("hex"))).toBeUndefined();
  expect(cloud.control.counts().total).toBe(20);
  expect(await rowKeys.named(current.name)).toEqual(current.key);
});
