import { randomUUID } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { VAULTS, vaultKey } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import type { MatchedApp } from "../../shared/rotation/match.ts";
import { createMatchIndex, VaultIndexes } from "../../shared/rotation/match-index.ts";
import { createMatches, type MatchFinder } from "../../shared/rotation/matches.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

/**
 * Tests of how the service finds the vault secrets that store an application's client secret, from tags, names and dates alone.
 */

const DAY_SECONDS = 86_400;
/** Current time of every test, in seconds since 1970. */
const NOW_SECONDS = Math.floor(Date.parse("2026-11-21T10:00:00.000Z") / 1000);
const caller = { actor: "admin", requestId: "test" };
const log = { debug() {}, info() {}, warn() {}, error() {} };
const failIfCalled = () => {
  throw new Error("Finding matches must neither read a value nor sign in.");
};

let azurite: TestStorage;
let accountIndex = 0;
beforeAll(async () => {
  // One storage account for each test and one for its retry: tests share no tables.
  azurite = await openStorage(Array.from({ length: 30 }, (_, index) => `matches${index}`));
});
afterAll(async () => await azurite.stop());

/** Returns a client of a table of the current test. */
const tableClient = (table: string) =>
  TableClient.fromConnectionString(azurite.connectionString(`matches${accountIndex - 1}`), table, {
    allowInsecureConnection: true,
  });

let tables: Tables;
let app: MatchedApp & { passwords: { keyId: string; hint?: string; startsOn: number; expiresOn: number }[] };
let finder: MatchFinder;
beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(`matches${accountIndex++}`) });
  app = {
    appId: randomUUID(),
    objectId: randomUUID(),
    displayName: "Payments API",
    passwords: [
      {
        keyId: randomUUID(),
        hint: "abc",
        startsOn: NOW_SECONDS - 60 * DAY_SECONDS,
        expiresOn: NOW_SECONDS + 30 * DAY_SECONDS,
      },
    ],
  };
  finder = createMatches({
    tables,
    audit: { append: async () => {} },
    config: { SERVICE_KEY_VAULT_URL: "https://kv-service.vault.azure.net/" },
    clock: { now: () => new Date(NOW_SECONDS * 1000) },
    log,
    limiter: { take: failIfCalled, cleanUp: failIfCalled },
    vaults: { open: () => ({ read: failIfCalled, versions: failIfCalled }) as never },
    app: async (appId) => (appId === app.appId ? app : undefined),
    proveSignIn: failIfCalled,
  });
});

/** Writes the rows that a scan writes for a vault with these secrets. */
async function writeScannedVault(
  name: string,
  secrets: Record<string, Parameters<typeof assetRecord>[3]>,
): Promise<void> {
  const record = { ...vaultRecord(name), contents: { secret: randomUUID() } };
  const assets = Object.entries(secrets).map(([secret, more]) => assetRecord(record, "secret", secret, more));
  await writeVault(createInventoryWriter({ tables }), record, assets);
}

/** Updates the index and returns the application's matches as `vault/secret confidence evidence`. */
async function listMatches(): Promise<string[]> {
  await finder.index.update();
  const { matches } = await finder.listMatches(app.appId);
  return matches.map(
    ({ secret, confidence, evidence }) => `${secret.vaultName}/${secret.name} ${confidence} ${evidence.join(",")}`,
  );
}
/** The tags that this service writes to a rotated secret: application and credential. */
const entraTags = () => ({ "entra-app-id": app.appId, "entra-key-id": app.passwords[0]!.keyId });

describe("metadata that names an application or a credential", () => {
  test("a secret whose tags or content type name the credential is a certain match", async () => {
    const { keyId } = app.passwords[0]!;
    await writeScannedVault("kv-a", {
      tagged: { tags: entraTags() },
      sample: { tags: { CredentialId: keyId.toUpperCase(), ProviderAddress: `/applications/${app.objectId}` } },
      typed: { contentType: `payments:${app.appId.toUpperCase()}:${keyId}` },
    });
    await finder.index.update();
    const { matches } = await finder.listMatches(app.appId);
    expect(matches.map(({ secret, confidence, keyId: key }) => [secret.name, confidence, key])).toEqual([
      ["sample", "certain", keyId],
      ["tagged", "certain", keyId],
      ["typed", "certain", keyId],
    ]);
    expect(matches[1]!.evidence).toEqual(["tag", "appIdTag"]);
  });

  test("a secret that names a removed credential or contradicts itself is only a likely match", async () => {
    const second = { keyId: randomUUID(), startsOn: NOW_SECONDS, expiresOn: NOW_SECONDS + 300 * DAY_SECONDS };
    app.passwords.push(second);
    await writeScannedVault("kv-a", {
      old: { tags: { "entra-app-id": app.appId, "entra-key-id": randomUUID() } },
      "two-credentials": { tags: entraTags(), contentType: `x:${app.appId}:${second.keyId}` },
    });
    expect(await listMatches()).toEqual(["kv-a/old likely appIdTag", "kv-a/two-credentials likely appIdTag,conflict"]);
  });

  test("a secret that names another application is no match", async () => {
    await writeScannedVault("kv-a", {
      "payments-client-secret": { tags: { "entra-app-id": randomUUID() }, expiresOn: NOW_SECONDS + 30 * DAY_SECONDS },
      payments: { contentType: `payments:${randomUUID()}:${app.passwords[0]!.keyId}` },
    });
    expect(await listMatches()).toEqual([]);
  });

  test("a tag such as `client-id` excludes a secret of another application, unless another one names this application", async () => {
    const expiresOn = NOW_SECONDS + 30 * DAY_SECONDS;
    await writeScannedVault("kv-a", {
      "payments-client-secret": { tags: { "client-id": randomUUID() }, expiresOn },
      "payments-prod": { tags: { AppId: randomUUID().toUpperCase() } },
      payments: { tags: { ClientId: randomUUID(), application_id: app.appId } },
      "payments-api": { tags: { "client-id": "payments", "related-object-id": randomUUID() } },
    });
    expect(await listMatches()).toEqual(["kv-a/payments likely appIdTag,name", "kv-a/payments-api possible name"]);
  });

  test("a secret in the service's own vault is no match and can't be verified or confirmed", async () => {
    await writeScannedVault("KV-Service", { tagged: { tags: entraTags(), expiresOn: NOW_SECONDS + 30 * DAY_SECONDS } });
    expect(await listMatches()).toEqual([]);
    await expect(finder.verify(app.appId, { assetId: "kv-service.secret.tagged" }, caller)).rejects.toMatchObject({
      code: "serviceVault",
    });
    const confirmation = { assetId: "KV-SERVICE.secret.tagged", confirmed: true };
    await expect(finder.confirm(app.appId, confirmation, caller)).rejects.toMatchObject({ code: "serviceVault" });
  });
});

describe("likely and possible matches", () => {
  test("a shared expiry date is likely for one secret and possible for several", async () => {
    await writeScannedVault("kv-a", { "new-payments": { expiresOn: NOW_SECONDS + 30 * DAY_SECONDS + DAY_SECONDS } });
    expect(await listMatches()).toEqual(["kv-a/new-payments likely expiry"]);
    await writeScannedVault("kv-b", {
      two: { expiresOn: NOW_SECONDS + 30 * DAY_SECONDS - DAY_SECONDS },
      three: { expiresOn: NOW_SECONDS + 31 * DAY_SECONDS + 1 },
    });
    expect(await listMatches()).toEqual([
      "kv-a/new-payments possible expirySameDay",
      "kv-b/two possible expirySameDay",
    ]);
  });

  test.each([
    ["kv-a", "one", {}, "possible expiry"],
    ["kv-a", "client-secret", {}, "possible expiry"],
    ["kv-payments", "client-secret", {}, "likely expiry"],
    ["kv-a", "one", { createdOn: NOW_SECONDS - 60 * DAY_SECONDS }, "likely expiry,createdTogether"],
    // One second after the end of the creation window of ten minutes.
    ["kv-a", "one", { createdOn: NOW_SECONDS - 60 * DAY_SECONDS + 601 }, "possible expiry"],
  ])(
    "a secret with the credential's expiry date, %s/%s with %j, is a match: %s",
    async (vault, name, more, expected) => {
      await writeScannedVault(vault, { [name]: { expiresOn: NOW_SECONDS + 30 * DAY_SECONDS, ...more } });
      expect(await listMatches()).toEqual([`${vault}/${name} ${expected}`]);
    },
  );

  test("an expiry date stays likely if the application's name has no word to compare", async () => {
    app.displayName = "API";
    await writeScannedVault("kv-a", { one: { expiresOn: NOW_SECONDS + 30 * DAY_SECONDS } });
    expect(await listMatches()).toEqual(["kv-a/one likely expiry"]);
  });

  test("a secret named like the application is a possible match", async () => {
    // Generic words such as "client", "secret" and "prod" are ignored in the comparison; "db" and "kv" are not.
    const names = [
      "payments-api-client-secret",
      "PaymentsSecret",
      "payments-prod",
      "payments-db-password",
      "paymentsx",
      "kv-payments",
    ];
    await writeScannedVault("kv-a", Object.fromEntries(names.map((name) => [name, {}])));
    expect(await listMatches()).toEqual([
      "kv-a/payments-api-client-secret possible name",
      "kv-a/payments-prod possible name",
      "kv-a/PaymentsSecret possible name",
    ]);
  });

  test("a `<prefix>-client-secret` is a likely match if `<prefix>-client-id` names the application", async () => {
    await writeScannedVault("kv-a", {
      "x-client-id": { tags: { app: app.appId } },
      "x-client-secret": {},
      "y-client-secret": {},
    });
    expect(await listMatches()).toEqual(["kv-a/x-client-secret likely companion"]);
  });

  test("the client ID in a tag or in the name, or a creation time near the credential's, makes a match likely", async () => {
    await writeScannedVault("kv-a", {
      [`sp-${app.appId}`]: {},
      any: { tags: { purpose: `for ${app.appId}` } },
      payments: { createdOn: NOW_SECONDS - 60 * DAY_SECONDS + 600 },
    });
    expect(await listMatches()).toEqual([
      "kv-a/any likely appIdTag",
      "kv-a/payments likely createdTogether,name",
      `kv-a/sp-${app.appId} likely appIdTag`,
    ]);
  });
});

describe("index of application and credential IDs", () => {
  test("the service reports that the index is not built yet; an update of the index adds and removes changed secrets", async () => {
    await writeScannedVault("kv-a", { tagged: { tags: entraTags() } });
    expect((await finder.listMatches(app.appId)).coverage).toEqual([
      "The index of ids in tags, content types and names is not built yet.",
    ]);
    expect(await listMatches()).toHaveLength(1);
    expect((await finder.listMatches(app.appId)).coverage).toEqual([]);
    await writeScannedVault("kv-a", { other: { tags: entraTags() } });
    expect(await listMatches()).toEqual(["kv-a/other certain tag,appIdTag"]);
    await writeScannedVault("kv-a", {});
    expect(await listMatches()).toEqual([]);
    expect(await finder.index.findSecrets(app.appId, 10)).toEqual([]);
  });

  test("the index of a vault whose row can't be read stays, and the vault counts as waiting", async () => {
    await writeScannedVault("kv-a", { tagged: { tags: entraTags() } });
    await writeScannedVault("kv-b", {});
    await finder.index.update();
    await tableClient("Vaults").upsertEntity({ partitionKey: VAULTS, rowKey: vaultKey("kv-a"), name: 5 }, "Replace");
    await finder.index.update();
    expect(await finder.index.findSecrets(app.appId, 10)).toEqual([{ vaultName: "kv-a", secretName: "tagged" }]);
    expect(await finder.index.status()).toMatchObject({ vaults: 2, waiting: 1 });
  });

  test("an index row of a vault that can't be read is built again, and stale entries are removed", async () => {
    await writeScannedVault("kv-a", { tagged: { tags: entraTags() } });
    await writeScannedVault("kv-b", { copy: { tags: entraTags() } });
    await finder.index.update();
    await writeScannedVault("kv-a", { other: { tags: entraTags() } });
    for (const rowKey of ["kv-a", "kv-b", "kv-removed"])
      await tableClient(VaultIndexes.table).upsertEntity({ partitionKey: "vaults", rowKey, contents: 5 }, "Replace");
    // The entry of a vault that is not in the inventory any more.
    await tableClient(VaultIndexes.table).upsertEntity({ partitionKey: "guids", rowKey: `${app.appId}|kv-removed|x` });
    await finder.index.update();
    expect(await finder.index.findSecrets(app.appId, 10)).toEqual([
      { vaultName: "kv-a", secretName: "other" },
      { vaultName: "kv-b", secretName: "copy" },
    ]);
    expect(await finder.index.status()).toMatchObject({ vaults: 2, waiting: 0 });
    expect(await tables.get(VaultIndexes, "vaults", "kv-a")).toMatchObject({ keys: expect.any(Uint8Array) });
    expect(await tables.get(VaultIndexes, "vaults", "kv-removed")).toBeUndefined();
  });

  test("an update reads an unchanged vault again only after a week", async () => {
    await writeScannedVault("kv-a", { tagged: { tags: entraTags() } });
    await finder.index.update();
    const queriedPartitions: string[] = [];
    const pages: Tables["pages"] = (e: { table: string }, range: { partitionKey: string }) => {
      queriedPartitions.push(`${e.table} ${range.partitionKey}`);
      return tables.pages(e as never, range as never) as never;
    };
    const indexAfterDays = (days: number) =>
      createMatchIndex({
        tables: { ...tables, pages },
        log,
        clock: { now: () => new Date((NOW_SECONDS + days * DAY_SECONDS) * 1000) },
      });
    await indexAfterDays(6).update();
    expect(queriedPartitions).toEqual(["RotationMatchIndex vaults", "Vaults vaults"]);
    await indexAfterDays(8).update();
    expect(queriedPartitions.slice(2)).toEqual(["RotationMatchIndex vaults", "Vaults vaults", "Assets vault:kv-a"]);
    expect(await finder.index.status()).toMatchObject({ vaults: 1, waiting: 0 });
  });

  test("hostile tags, content types and display names match nothing", async () => {
    app.displayName = "%|!/\\#?\u0000 ' or 1 eq 1 \u202E";
    const hostile = `${"|".repeat(200)}' or PartitionKey ne '${app.appId.slice(0, 30)}`;
    await writeScannedVault("kv-a", {
      odd: { tags: { "entra-app-id": hostile, [hostile]: "%25" }, contentType: `::${hostile}:` },
    });
    expect(await listMatches()).toEqual([]);
  });
});

test("confirming an unknown credential returns up to 20 key IDs of the application", async () => {
  await writeScannedVault("kv-a", { tagged: { tags: entraTags() } });
  const confirmationErrors = async (keyId: string | undefined) => {
    const confirmation = { assetId: "kv-a.secret.tagged", confirmed: true, ...(keyId !== undefined && { keyId }) };
    const failure: unknown = await finder.confirm(app.appId, confirmation, caller).catch((error: unknown) => error);
    return (failure as { errors: unknown }).errors;
  };
  const keyIdError = (has: string) => [
    { path: "body.keyId", message: `must be the key id of one of the application's client secrets: ${has}` },
  ];
  const ids = Array.from({ length: 21 }, () => randomUUID());
  app.passwords = ids.map((keyId) => ({ keyId, startsOn: NOW_SECONDS, expiresOn: NOW_SECONDS + 300 * DAY_SECONDS }));
  expect(await confirmationErrors(randomUUID())).toEqual(keyIdError(`it has ${ids.slice(0, 20).join(", ")}`));
  expect(await confirmationErrors(undefined)).toEqual(keyIdError(`it has ${ids.slice(0, 20).join(", ")}`));
  app.passwords = [];
  expect(await confirmationErrors(ids[0])).toEqual(keyIdError("it has none"));
});

test("matches of an unknown application are rejected as not found", async () => {
  await expect(finder.listMatches(randomUUID())).rejects.toMatchObject({ code: "notFound" });
});
