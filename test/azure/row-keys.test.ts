import { randomBytes } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { liveIn } from "./live-cloud.ts";
import { failureOf, IMPATIENT, recordingLog } from "./services.ts";

let cloud: Cloud;
let vault: ServiceKeyVault;
const keys = () => keyVaultRowKeys(vault, systemRandomness());

beforeAll(async () => {
  const live = await liveIn({ company: "small" });
  cloud = live.cloud;
  const identity = createIdentity(live.config);
  vault = createServiceKeyVault({ config: live.config, identity, log: recordingLog(), limits: IMPATIENT })!;
});
afterAll(() => cloud?.stop());
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.resetCounts();
});

test("keys of a vault that can't be read throw its failure, and the next call reads again", async () => {
  const ours = keys();
  cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" }, times: 1 });
  expect((await failureOf(ours.current())).code).toBe("accessDenied");
  expect((await ours.current()).key).toHaveLength(32);
});

test("the key is created once, is the same in every process, and is read once by each process", async () => {
  const [one, two] = [keys(), keys()];
  const first = await one.current();
  expect(await two.current()).toEqual(first);
  expect(await two.named(first.name)).toEqual(first.key);
  cloud.control.resetCounts();
  await two.current();
  for (let time = 0; time < 3; time++) expect(await two.named(first.name)).toEqual(first.key);
  expect(cloud.control.counts().total ?? 0).toBe(0);
});

test("an added version signs from then on, and earlier versions still verify", async () => {
  const before = await keys().current();
  const name = await vault.writeSecret("row-signing", randomBytes(32).toString("base64"), "text/plain");
  const ours = keys();
  expect((await ours.current()).name).toBe(name);
  expect(await ours.named(before.name)).toEqual(before.key);
});

test("a value that is no key is rejected", async () => {
  for (const name of ["", "x", "../other", "0".repeat(32)]) expect(await keys().named(name)).toBeUndefined();
  await vault.writeSecret("row-signing", "short", "text/plain");
  expect((await failureOf(keys().current())).code).toBe("badResponse");
});
