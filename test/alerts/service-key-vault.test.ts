import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { failureOf, IMPATIENT, recordingLog } from "../azure/services.ts";

let cloud: Cloud;
let vault: ServiceKeyVault;

beforeAll(async () => {
  const live = await liveIn({ company: { subscriptions: [] } });
  cloud = live.cloud;
  const { config } = live;
  vault = createServiceKeyVault({ config, identity: createIdentity(config), log: recordingLog(), limits: IMPATIENT })!;
});
afterAll(() => cloud.stop());

test("old versions of a secret stay readable, and its removal is idempotent", async () => {
  const first = await vault.writeSecret("webhook-a", "one", "text/plain");
  const second = await vault.writeSecret("webhook-a", "two", "text/plain");
  expect(await vault.readSecret("webhook-a", first)).toBe("one");
  expect(await vault.readSecret("webhook-a", second)).toBe("two");
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("webhook-a", second)).toBeUndefined();
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("never-there", first)).toBeUndefined();
});

test("tags are written to the current version and can be read", async () => {
  expect(await vault.readTags("anchor")).toBeUndefined();
  await vault.writeTags("anchor", { number: "1" });
  cloud.control.resetCounts();
  await vault.writeTags("anchor", { number: "2", hash: "x" });
  expect(await vault.readTags("anchor")).toEqual({ number: "2", hash: "x" });
  expect(cloud.control.counts()["keyvault.setSecret"]).toBeUndefined();
});

test("a denied request names the missing role and is not retried", async () => {
  cloud.control.addFault({ match: { vault: "kv-lifecycle-service" }, action: { kind: "deny" } });
  const failure = await failureOf(vault.writeSecret("webhook-b", "one", "text/plain"));
  expect(failure.code).toBe("accessDenied");
  expect(failure.remedy).toContain("Key Vault Secrets Officer");
  cloud.control.clearFaults();
});
