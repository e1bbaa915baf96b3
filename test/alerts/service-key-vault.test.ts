import { afterAll, beforeAll, expect, test } from "vitest";
import type { Cloud } from "../../infra/local/cloud/cloud.ts";
import { createIdentity } from "../../shared/azure/identity.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/azure/service-key-vault.ts";
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

test("a secret's versions stay readable, and it can be removed, twice", async () => {
  const first = await vault.writeSecret("webhook-a", "one", "text/plain");
  const second = await vault.writeSecret("webhook-a", "two", "text/plain");
  expect(await vault.readSecret("webhook-a", first)).toBe("one");
  expect(await vault.readSecret("webhook-a", second)).toBe("two");
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("webhook-a", second)).toBeUndefined();
  await vault.removeSecret("webhook-a");
  expect(await vault.readSecret("never-there", first)).toBeUndefined();
});

test("tags are written on the version there is, and read again", async () => {
  expect(await vault.readTags("anchor")).toBeUndefined();
  await vault.writeTags("anchor", { number: "1" });
  cloud.control.resetCounts();
  await vault.writeTags("anchor", { number: "2", hash: "x" });
  expect(await vault.readTags("anchor")).toEqual({ number: "2", hash: "x" });
  expect(cloud.control.counts()["keyvault.setSecret"]).toBeUndefined();
});

test("a refusal names the role that is missing, and nothing else is tried", async () => {
  cloud.control.addFault({ match: { vault: "kv-lifecycle-service" }, action: { kind: "deny" } });
  const failure = await failureOf(vault.writeSecret("webhook-b", "one", "text/plain"));
  expect(failure.code).toBe("accessDenied");
  expect(failure.remedy).toContain("Key Vault Secrets Officer");
  cloud.control.clearFaults();
});
