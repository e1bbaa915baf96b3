import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { anchorSecret, keyVaultAnchor } from "../../shared/audit/chain/anchor.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { storageAccount } from "../../shared/platform/storage/connection.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { eventBy, openFixture } from "./support.ts";

/**
 * Tests of the anchor: the copy of the audit log's newest digest in the service's own key vault. A digest is the signed hash of
 * ten minutes of the log. With the anchor, verification detects that someone removed the newest digests from the tables.
 */

let azurite: TestStorage;
/** Two storage accounts whose logs share one key vault. */
let sharedVaultAccounts: TestStorage;
let cloud: Cloud;
let config: Config;
beforeAll(async () => {
  azurite = await openStorage();
  sharedVaultAccounts = await openStorage(["payments", "identity"]);
  ({ cloud, config } = await startTestCloud({ company: "small" }));
});
afterAll(() => Promise.all([azurite.stop(), sharedVaultAccounts.stop(), cloud.stop()]));

/** Creates the client of the service's own key vault, on the simulated cloud. Undefined if the configuration names no vault. */
const createVault = (change: Partial<Config> = {}) => {
  const changedConfig = { ...config, ...change };
  return createServiceKeyVault({
    config: changedConfig,
    identity: createIdentity(changedConfig),
    log: recordingLog(),
    limits: SHORT_WAITS,
  });
};

test("each sealing stores the newest digest in the key vault, as tags of one secret version", async () => {
  const anchor = keyVaultAnchor(createVault()!, "devstoreaccount1");
  const fixture = openFixture(azurite.connectionString());
  const audit = fixture.instance({ anchor });
  expect(await anchor.read()).toBeUndefined();
  await audit.append(eventBy("ada"));
  for (const number of [1, 2, 3]) {
    // An interval of ten minutes is sealed one minute after its end at the earliest.
    fixture.clock.addMinutes(number === 1 ? 12 : 10);
    await audit.seal();
    expect(await anchor.read()).toMatchObject({ number });
  }
  expect((await audit.verify({})).anchor).toMatchObject({ state: "matches", number: 3, interval: "2026-11-21T10:20Z" });

  const requestCounts = cloud.control.counts();
  expect(requestCounts).toMatchObject({ "keyvault.setSecret": 1 });
  expect(anchorSecret("devstoreaccount1")).toMatch(/^[0-9a-zA-Z-]{1,127}$/);
});

test("reading the anchor of an unreachable key vault throws CloudFailure", async () => {
  const anchor = keyVaultAnchor(
    createVault({ SERVICE_KEY_VAULT_URL: "https://gone.vault.localhost:1" })!,
    "devstoreaccount1",
  );
  await expect(anchor.read()).rejects.toBeInstanceOf(CloudFailure);
});

test("an address that is not of a key vault is rejected; without an address there is no client", () => {
  expect(createVault({ SERVICE_KEY_VAULT_URL: undefined })).toBeUndefined();
  expect(() => createVault({ SERVICE_KEY_VAULT_URL: "https://example.com" })).toThrow(CloudFailure);
});

test("two deployments with one key vault store their anchors separately", async () => {
  const fixtures = ["payments", "identity"].map((account) => {
    const fixture = openFixture(sharedVaultAccounts.connectionString(account));
    return { ...fixture, audit: fixture.instance({ anchor: keyVaultAnchor(createVault()!, account) }) };
  });
  for (const fixture of fixtures) {
    await fixture.audit.append(eventBy("ada"));
    fixture.clock.addMinutes(12);
    await fixture.audit.seal();
  }
  for (const { audit } of fixtures) {
    expect(await audit.verify({})).toMatchObject({ intact: true, anchor: { state: "matches", number: 1 } });
  }
});

test("the anchor under the secret name of an earlier version is read until the deployment writes its own", async () => {
  const secrets = createVault()!;
  const anchor = keyVaultAnchor(secrets, "upgraded");
  const earlierTags = { number: "7", interval: "2026-11-21T10:00Z", hash: "h" };
  await secrets.writeTags("audit-newest-digest", earlierTags);
  expect(await anchor.read()).toEqual({ ...earlierTags, number: 7 });
  const ownAnchor = {
    number: 8,
    interval: "2026-11-21T10:10Z",
    hash: "i",
    beginning: { interval: "2026-11-21T09:00Z", hash: "b" },
  };
  await anchor.write(ownAnchor);
  expect(await anchor.read()).toEqual(ownAnchor);
  expect(await secrets.readTags("audit-newest-digest")).toEqual(earlierTags);
});

for (const [name, tags] of [
  ["the number 2^53-1, which has no safe successor", { number: "9007199254740991" }],
  ["a number higher than the number of intervals since 2020", { number: "99999999" }],
  ["no number", { number: "NaN" }],
  ["no interval", { interval: "tomorrow" }],
  ["no hash", { hash: undefined }],
] as const) {
  test(`an anchor with ${name} is unreadable`, async () => {
    const secrets = createVault()!;
    const { hash, ...otherTags } = { number: "7", interval: "2026-11-21T10:00Z", hash: "h", ...tags };
    await secrets.writeTags(anchorSecret("broken"), hash === undefined ? otherTags : { ...otherTags, hash });
    expect(await keyVaultAnchor(secrets, "broken").read()).toBe("unreadable");
  });
}

test("the name of the storage account is found in service addresses and in every form of connection string", () => {
  const credential = () => Promise.reject(new Error("not asked for"));
  const uris = {
    tableServiceUri: "https://acme1.table.core.windows.net",
    queueServiceUri: "https://acme1.queue.core.windows.net",
  };
  expect(storageAccount({ ...uris, credential })).toBe("acme1");
  expect(storageAccount({ connectionString: "DefaultEndpointsProtocol=https;AccountName=Acme2;AccountKey=eA==" })).toBe(
    "acme2",
  );
  const signature = "TableEndpoint=https://acme3.table.core.windows.net;SharedAccessSignature=sv=x";
  expect(storageAccount({ connectionString: signature })).toBe("acme3");
  expect(storageAccount({ connectionString: "UseDevelopmentStorage=true" })).toBe("devstoreaccount1");
});
