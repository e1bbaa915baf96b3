import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { anchorSecret, keyVaultAnchor } from "../../shared/audit/chain/anchor.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { storageAccount } from "../../shared/platform/storage/connection.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IMPATIENT, recordingLog } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { by, openFixture } from "./support.ts";

let azurite: TestStorage;
let shared: TestStorage;
let cloud: Cloud;
let config: Config;
beforeAll(async () => {
  azurite = await openStorage();
  shared = await openStorage(["payments", "identity"]);
  ({ cloud, config } = await liveIn({ company: "small" }));
});
afterAll(() => Promise.all([azurite.stop(), shared.stop(), cloud.stop()]));

const vault = (change: Partial<Config> = {}) => {
  const changed = { ...config, ...change };
  return createServiceKeyVault({
    config: changed,
    identity: createIdentity(changed),
    log: recordingLog(),
    limits: IMPATIENT,
  });
};

test("the service's own key vault stores the newest digest, in one version however often it changes", async () => {
  const anchor = keyVaultAnchor(vault()!, "devstoreaccount1");
  const fixture = openFixture(azurite.connectionString());
  const audit = fixture.instance({ anchor });
  expect(await anchor.read()).toBeUndefined();
  await audit.append(by("ada"));
  for (const number of [1, 2, 3]) {
    fixture.clock.addMinutes(number === 1 ? 12 : 10);
    await audit.seal();
    expect(await anchor.read()).toMatchObject({ number });
  }
  expect((await audit.verify({})).anchor).toMatchObject({ state: "matches", number: 3, interval: "2026-11-21T10:20Z" });

  const versions = cloud.control.counts();
  expect(versions).toMatchObject({ "keyvault.setSecret": 1 });
  expect(anchorSecret("devstoreaccount1")).toMatch(/^[0-9a-zA-Z-]{1,127}$/);
});

test("a vault that does not answer is reported as a failure of the cloud", async () => {
  const anchor = keyVaultAnchor(
    vault({ SERVICE_KEY_VAULT_URL: "https://gone.vault.localhost:1" })!,
    "devstoreaccount1",
  );
  await expect(anchor.read()).rejects.toBeInstanceOf(CloudFailure);
});

test("without an address there is no vault; an address that is not of a key vault is rejected", () => {
  expect(vault({ SERVICE_KEY_VAULT_URL: undefined })).toBeUndefined();
  expect(() => vault({ SERVICE_KEY_VAULT_URL: "https://example.com" })).toThrow(CloudFailure);
});

test("two deployments with one key vault each store their own digest", async () => {
  const fixtures = ["payments", "identity"].map((account) => {
    const fixture = openFixture(shared.connectionString(account));
    return { ...fixture, audit: fixture.instance({ anchor: keyVaultAnchor(vault()!, account) }) };
  });
  for (const fixture of fixtures) {
    await fixture.audit.append(by("ada"));
    fixture.clock.addMinutes(12);
    await fixture.audit.seal();
  }
  for (const { audit } of fixtures) {
    expect(await audit.verify({})).toMatchObject({ intact: true, anchor: { state: "matches", number: 1 } });
  }
});

test("the anchor of an earlier version under a shared name is read until the deployment's own is written", async () => {
  const secrets = vault()!;
  const anchor = keyVaultAnchor(secrets, "upgraded");
  const old = { number: "7", interval: "2026-11-21T10:00Z", hash: "h" };
  await secrets.writeTags("audit-newest-digest", old);
  expect(await anchor.read()).toEqual({ ...old, number: 7 });
  const own = {
    number: 8,
    interval: "2026-11-21T10:10Z",
    hash: "i",
    beginning: { interval: "2026-11-21T09:00Z", hash: "b" },
  };
  await anchor.write(own);
  expect(await anchor.read()).toEqual(own);
  expect(await secrets.readTags("audit-newest-digest")).toEqual(old);
});

for (const [name, tags] of [
  ["an absurd number", { number: "9007199254740991" }],
  ["a number higher than there are intervals", { number: "99999999" }],
  ["no number", { number: "NaN" }],
  ["no interval", { interval: "tomorrow" }],
  ["no hash", { hash: undefined }],
] as const) {
  test(`an anchor with ${name} is unreadable`, async () => {
    const secrets = vault()!;
    const { hash, ...rest } = { number: "7", interval: "2026-11-21T10:00Z", hash: "h", ...tags };
    await secrets.writeTags(anchorSecret("broken"), hash === undefined ? rest : { ...rest, hash });
    expect(await keyVaultAnchor(secrets, "broken").read()).toBe("unreadable");
  });
}

test("a deployment's name is its storage account's, however the service is told of it", () => {
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
