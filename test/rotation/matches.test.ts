import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import type { MatchedApp } from "../../shared/rotation/match.ts";
import { createMatchIndex } from "../../shared/rotation/match-index.ts";
import { createMatches, type MatchFinder } from "../../shared/rotation/matches.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const DAY = 86_400;
const NOW = Math.floor(Date.parse("2026-11-21T10:00:00.000Z") / 1000);
const log = { debug() {}, info() {}, warn() {}, error() {} };
const unused = () => {
  throw new Error("Finding matches must not read a value or sign in.");
};

let azurite: TestStorage;
let account = 0;
beforeAll(async () => {
  // One account for each test, and as many for retries.
  azurite = await openStorage(Array.from({ length: 26 }, (_, index) => `matches${index}`));
});
afterAll(async () => await azurite.stop());

let tables: Tables;
let app: MatchedApp & { passwords: { keyId: string; hint?: string; startsOn: number; expiresOn: number }[] };
let finder: MatchFinder;
beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(`matches${account++}`) });
  app = {
    appId: randomUUID(),
    objectId: randomUUID(),
    displayName: "Payments API",
    passwords: [{ keyId: randomUUID(), hint: "abc", startsOn: NOW - 60 * DAY, expiresOn: NOW + 30 * DAY }],
  };
  finder = createMatches({
    tables,
    audit: { append: async () => {} },
    config: { SERVICE_KEY_VAULT_URL: "https://kv-service.vault.azure.net/" },
    clock: { now: () => new Date(NOW * 1000) },
    log,
    limiter: { take: unused, cleanUp: unused },
    vaults: { open: () => ({ read: unused, versions: unused }) as never },
    app: async (appId) => (appId === app.appId ? app : undefined),
    proveSignIn: unused,
  });
});

/** A vault with these secrets, as a scan leaves it. */
async function vault(name: string, secrets: Record<string, Parameters<typeof assetRecord>[3]>): Promise<void> {
  const record = { ...vaultRecord(name), contents: { secret: randomUUID() } };
  const assets = Object.entries(secrets).map(([secret, more]) => assetRecord(record, "secret", secret, more));
  await writeVault(createInventoryWriter({ tables }), record, assets);
}

/** Returns matches as `vault/secret confidence evidence`. */
async function found(): Promise<string[]> {
  await finder.index.update();
  const { matches } = await finder.of(app.appId);
  return matches.map(
    ({ secret, confidence, evidence }) => `${secret.vaultName}/${secret.name} ${confidence} ${evidence.join(",")}`,
  );
}
const ours = () => ({ "entra-app-id": app.appId, "entra-key-id": app.passwords[0]!.keyId });

describe("what makes a match certain", () => {
  test("our tags, the tags of Microsoft's sample, and the content type, in any case of letters", async () => {
    const { keyId } = app.passwords[0]!;
    await vault("kv-a", {
      tagged: { tags: ours() },
      sample: { tags: { CredentialId: keyId.toUpperCase(), ProviderAddress: `/applications/${app.objectId}` } },
      typed: { contentType: `payments:${app.appId.toUpperCase()}:${keyId}` },
    });
    await finder.index.update();
    const { matches } = await finder.of(app.appId);
    expect(matches.map(({ secret, confidence, keyId: key }) => [secret.name, confidence, key])).toEqual([
      ["sample", "certain", keyId],
      ["tagged", "certain", keyId],
      ["typed", "certain", keyId],
    ]);
    expect(matches[1]!.evidence).toEqual(["tag", "appIdTag"]);
  });

  test("not a tag that names a credential the application has no more, nor tags that contradict the content type", async () => {
    const second = { keyId: randomUUID(), startsOn: NOW, expiresOn: NOW + 300 * DAY };
    app.passwords.push(second);
    await vault("kv-a", {
      old: { tags: { "entra-app-id": app.appId, "entra-key-id": randomUUID() } },
      torn: { tags: ours(), contentType: `x:${app.appId}:${second.keyId}` },
    });
    expect(await found()).toEqual(["kv-a/old likely appIdTag", "kv-a/torn likely appIdTag,conflict"]);
  });

  test("never a secret that says it is another application's, whatever else fits", async () => {
    await vault("kv-a", {
      "payments-client-secret": { tags: { "entra-app-id": randomUUID() }, expiresOn: NOW + 30 * DAY },
      payments: { contentType: `payments:${randomUUID()}:${app.passwords[0]!.keyId}` },
    });
    expect(await found()).toEqual([]);
  });

  test("never one of the service's own vault", async () => {
    await vault("KV-Service", { tagged: { tags: ours(), expiresOn: NOW + 30 * DAY } });
    expect(await found()).toEqual([]);
    await expect(finder.verify(app.appId, { assetId: "kv-service.secret.tagged" }, caller)).rejects.toMatchObject({
      code: "serviceVault",
    });
    const word = { assetId: "KV-SERVICE.secret.tagged", confirmed: true };
    await expect(finder.confirm(app.appId, word, caller)).rejects.toMatchObject({ code: "serviceVault" });
  });
});
const caller = { actor: "admin", requestId: "test" };

describe("what only makes it likely or possible", () => {
  test("an expiry that one secret shares with the credential, and one that several share", async () => {
    await vault("kv-a", { one: { expiresOn: NOW + 30 * DAY + DAY } });
    expect(await found()).toEqual(["kv-a/one likely expiry"]);
    await vault("kv-b", { two: { expiresOn: NOW + 30 * DAY - DAY }, three: { expiresOn: NOW + 31 * DAY + 1 } });
    expect(await found()).toEqual(["kv-a/one possible expirySameDay", "kv-b/two possible expirySameDay"]);
  });

  test("a name that is the application's but for words that say nothing, and not that of another one", async () => {
    const names = [
      "payments-api-client-secret",
      "PaymentsSecret",
      "payments-prod",
      "payments-db-password",
      "paymentsx",
      "kv-payments",
    ];
    await vault("kv-a", Object.fromEntries(names.map((name) => [name, {}])));
    expect(await found()).toEqual([
      "kv-a/payments-api-client-secret possible name",
      "kv-a/payments-prod possible name",
      "kv-a/PaymentsSecret possible name",
    ]);
  });

  test("a secret beside `<prefix>-client-id`, whose tags name the application", async () => {
    await vault("kv-a", { "x-client-id": { tags: { app: app.appId } }, "x-client-secret": {}, "y-client-secret": {} });
    expect(await found()).toEqual(["kv-a/x-client-secret likely companion"]);
  });

  test("a client id in any tag, the content type or the name; made in the same minutes", async () => {
    await vault("kv-a", {
      [`sp-${app.appId}`]: {},
      any: { tags: { purpose: `for ${app.appId}` } },
      payments: { createdOn: NOW - 60 * DAY + 600 },
    });
    expect(await found()).toEqual([
      "kv-a/any likely appIdTag",
      "kv-a/payments likely createdTogether,name",
      `kv-a/sp-${app.appId} likely appIdTag`,
    ]);
  });
});

describe("the index of ids", () => {
  test("reports what is missing, and follows changes and deletions", async () => {
    await vault("kv-a", { tagged: { tags: ours() } });
    expect((await finder.of(app.appId)).coverage).toEqual([
      "The index of ids in tags, content types and names is not built yet.",
    ]);
    expect(await found()).toHaveLength(1);
    expect((await finder.of(app.appId)).coverage).toEqual([]);
    await vault("kv-a", { other: { tags: ours() } });
    expect(await found()).toEqual(["kv-a/other certain tag,appIdTag"]);
    await vault("kv-a", {});
    expect(await found()).toEqual([]);
    expect(await finder.index.holding(app.appId, 10)).toEqual([]);
  });

  test("reads no vault's secrets again when nothing changed, and each again after a week", async () => {
    await vault("kv-a", { tagged: { tags: ours() } });
    await finder.index.update();
    const read: string[] = [];
    const pages: Tables["pages"] = (e: { table: string }, range: { partitionKey: string }) => {
      read.push(`${e.table} ${range.partitionKey}`);
      return tables.pages(e as never, range as never) as never;
    };
    const later = (days: number) =>
      createMatchIndex({
        tables: { ...tables, pages },
        log,
        clock: { now: () => new Date((NOW + days * DAY) * 1000) },
      });
    await later(6).update();
    expect(read).toEqual(["RotationMatchIndex vaults", "Vaults vaults"]);
    await later(8).update();
    expect(read.slice(2)).toEqual(["RotationMatchIndex vaults", "Vaults vaults", "Assets vault:kv-a"]);
    expect(await finder.index.status()).toMatchObject({ vaults: 1, waiting: 0 });
  });

  test("hostile texts of tags, content types and display names find nothing and break nothing", async () => {
    app.displayName = "%|!/\\#?\u0000 ' or 1 eq 1 \u202E";
    const hostile = `${"|".repeat(200)}' or PartitionKey ne '${app.appId.slice(0, 30)}`;
    await vault("kv-a", { odd: { tags: { "entra-app-id": hostile, [hostile]: "%25" }, contentType: `::${hostile}:` } });
    expect(await found()).toEqual([]);
  });
});

test("a word about a credential that is none names those that there are, twenty at most", async () => {
  await vault("kv-a", { tagged: { tags: ours() } });
  const saying = async (keyId: string | undefined) => {
    const word = { assetId: "kv-a.secret.tagged", confirmed: true, ...(keyId !== undefined && { keyId }) };
    const failure: unknown = await finder.confirm(app.appId, word, caller).catch((error: unknown) => error);
    return (failure as { errors: unknown }).errors;
  };
  const refusal = (has: string) => [
    { path: "body.keyId", message: `must be the key id of one of the application's client secrets: ${has}` },
  ];
  const ids = Array.from({ length: 21 }, () => randomUUID());
  app.passwords = ids.map((keyId) => ({ keyId, startsOn: NOW, expiresOn: NOW + 300 * DAY }));
  expect(await saying(randomUUID())).toEqual(refusal(`it has ${ids.slice(0, 20).join(", ")}`));
  expect(await saying(undefined)).toEqual(refusal(`it has ${ids.slice(0, 20).join(", ")}`));
  app.passwords = [];
  expect(await saying(ids[0])).toEqual(refusal("it has none"));
});

test("an unknown application is not found", async () => {
  await expect(finder.of(randomUUID())).rejects.toMatchObject({ code: "notFound" });
});
