import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import {
  createVaultSecrets,
  type VaultSecrets,
  type VaultSecretsClients,
} from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { startTestCloud } from "./live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "./services.ts";

/** Tests of the client that reads and writes secret values for rotation and sync. */

let cloud: Cloud;
let config: Config;
let clients: VaultSecretsClients;
let vault: VaultSecrets;
const log = recordingLog();

const uriOf = (name: string) =>
  `https://${name}.${config.cloud.keyVaultSuffix}:${new URL(config.SERVICE_KEY_VAULT_URL!).port}`;

beforeAll(async () => {
  const vaults = [
    {
      name: "kv-shop",
      secrets: [
        { name: "present", value: "value-of-old", contentType: "text/plain", tags: { team: "shop" }, expiresInDays: 9 },
      ],
      certificates: [{ name: "www" }],
    },
  ];
  ({ cloud, config } = await startTestCloud({
    company: { subscriptions: [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults }] },
  }));
  clients = createVaultSecrets({ config, identity: createIdentity(config), log, limits: SHORT_WAITS });
  vault = clients.open({ name: "kv-shop", vaultUri: uriOf("kv-shop") });
});
afterAll(() => cloud.stop());
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.resetCounts();
});

test("a new version does not inherit properties, and lists contain no values", async () => {
  const oldVersion = await vault.read("present");
  expect(oldVersion).toMatchObject({
    value: "value-of-old",
    contentType: "text/plain",
    tags: { team: "shop" },
    managed: false,
  });
  const expiresOn = oldVersion!.expiresOn! + 1000;
  const written = await vault.write("present", { value: "value-of-new", expiresOn });
  expect(written).toMatchObject({ name: "present", enabled: true, expiresOn, tags: {} });
  expect(JSON.stringify(written)).not.toContain("value-of");
  cloud.control.resetCounts();
  const versions = await vault.versions("present");
  expect(versions.map(({ version }) => version)).toEqual([written.version, oldVersion!.version]);
  expect(JSON.stringify(versions)).not.toContain("value-of");
  expect(cloud.control.counts()).toMatchObject({ "keyvault.listSecretVersions": 1, total: 1 });
  expect(await vault.read("present", oldVersion!.version)).toMatchObject({
    value: "value-of-old",
    tags: { team: "shop" },
  });
});

test("dates after 2038 are written unchanged", async () => {
  const dates = { notBefore: 2_147_483_648, expiresOn: 4_102_444_800 };
  expect(await vault.write("far", { value: "value-of-far", ...dates })).toMatchObject(dates);
  expect(await vault.read("far")).toMatchObject({ ...dates, enabled: true });
});

test("versions on several pages are all listed", async () => {
  for (let count = 0; count < 27; count++) await vault.write("often", { value: `value-of-${count}` });
  const versions = await vault.versions("often");
  expect(new Set(versions.map(({ version }) => version)).size).toBe(27);
});

test("reading and deleting an unknown secret succeeds", async () => {
  expect(await vault.read("never")).toBeUndefined();
  expect(await vault.versions("never")).toEqual([]);
  expect(await vault.deleted("never")).toBeUndefined();
  await vault.remove("never");
  await vault.recover("never");
});

test("reading a disabled version fails with `disabled`, and the version can be enabled again", async () => {
  const { version } = await vault.write("off", { value: "value-of-off", tags: { team: "shop" } });
  await vault.enable("off", version, false);
  expect((await expectFailure(vault.read("off"))).code).toBe("disabled");
  expect(await vault.versions("off")).toMatchObject([{ enabled: false, tags: { team: "shop" } }]);
  await vault.enable("off", version, true);
  expect(await vault.read("off")).toMatchObject({ value: "value-of-off", enabled: true });
});

test("the name of a deleted secret can't be used until the secret is recovered", async () => {
  await vault.write("gone", { value: "value-of-gone", tags: { owner: "us" } });
  await vault.remove("gone");
  expect(await vault.read("gone")).toBeUndefined();
  expect(await vault.deleted("gone")).toEqual({ tags: { owner: "us" } });
  const failure = await expectFailure(vault.write("gone", { value: "value-of-other" }));
  expect(failure).toMatchObject({ code: "deleted", unclear: false });
  expect(failure.remedy).toContain("Recover");
  await vault.recover("gone");
  expect(await vault.read("gone")).toMatchObject({ value: "value-of-gone" });
});

test("a write whose response was lost is not retried", async () => {
  cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "loseAnswer" } });
  const failure = await expectFailure(vault.write("once", { value: "value-of-once" }));
  expect(failure).toMatchObject({ code: "unreachable", unclear: true });
  expect(cloud.control.counts()).toMatchObject({ "keyvault.setSecret": 1 });
  expect(await vault.versions("once")).toHaveLength(1);
});

test("a throttled write is retried", async () => {
  cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "throttle" }, times: 2 });
  await vault.write("patient", { value: "value-of-patient" });
  expect(await vault.versions("patient")).toHaveLength(1);
});

test("a denied write fails with the role that is missing", async () => {
  cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
  const failure = await expectFailure(vault.write("refused", { value: "value-of-refused" }));
  expect(failure).toMatchObject({ code: "accessDenied", cloudCode: "ForbiddenByRbac" });
  expect(failure.remedy).toContain("Key Vault Secrets Officer");
});

test("a certificate's secret is marked as managed", async () => {
  expect(await vault.versions("www")).toMatchObject([{ managed: true }]);
});

test("the service's own vault and vaults on other hosts are rejected", () => {
  const serviceVault = new URL(config.SERVICE_KEY_VAULT_URL!);
  const name = serviceVault.hostname.split(".")[0]!;
  for (const vaultUri of [
    serviceVault.href,
    serviceVault.origin,
    `https://${serviceVault.host.toUpperCase()}/`,
    `https://${serviceVault.hostname}`,
  ]) {
    expect(() => clients.open({ name: "kv-other", vaultUri })).toThrow(
      expect.objectContaining({ code: "serviceVault" }),
    );
  }
  expect(() => clients.open({ name: name.toUpperCase(), vaultUri: uriOf("kv-other") })).toThrow(
    expect.objectContaining({ code: "serviceVault" }),
  );
  expect(() => clients.open({ name: "kv-evil", vaultUri: "https://evil.localhost" })).toThrow(
    expect.objectContaining({ code: "foreignHost" }),
  );
});

test("no log line contains a value", () => {
  expect(log.lines.join("\n")).not.toContain("value-of-");
});
