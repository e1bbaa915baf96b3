import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "../azure/services.ts";

/**
 * Tests of the service's own key vault, which stores secrets of alert rules and, as tags, the newest digest of the audit log.
 */

let cloud: Cloud;
let vault: ServiceKeyVault;

beforeAll(async () => {
  const live = await startTestCloud({ company: { subscriptions: [] } });
  cloud = live.cloud;
  const { config } = live;
  vault = createServiceKeyVault({
    config,
    identity: createIdentity(config),
    log: recordingLog(),
    limits: SHORT_WAITS,
  })!;
});
afterAll(() => cloud.stop());

test("every version of a secret is readable until the secret is removed", async () => {
  const first = await vault.writeSecret("webhook-a", "one", "text/plain");
  const second = await vault.writeSecret("webhook-a", "two", "text/plain");
  expect(await vault.readSecret("webhook-a", first)).toBe("one");
  expect(await vault.readSecret("webhook-a", second)).toBe("two");
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("webhook-a", second)).toBeUndefined();
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("never-there", first)).toBeUndefined();
});

test("changing tags does not create a new version of the secret", async () => {
  expect(await vault.readTags("anchor")).toBeUndefined();
  await vault.writeTags("anchor", { number: "1" });
  cloud.control.resetCounts();
  await vault.writeTags("anchor", { number: "2", hash: "x" });
  expect(await vault.readTags("anchor")).toEqual({ number: "2", hash: "x" });
  expect(cloud.control.counts()["keyvault.setSecret"]).toBeUndefined();
});

test("a denied request names the missing role and is not retried", async () => {
  cloud.control.addFault({ match: { vault: "kv-lifecycle-service" }, action: { kind: "deny" } });
  const failure = await expectFailure(vault.writeSecret("webhook-b", "one", "text/plain"));
  expect(failure.code).toBe("accessDenied");
  expect(failure.remedy).toContain("Key Vault Secrets Officer");
  cloud.control.clearFaults();
});
