/*
 * A full scan requests all details of a vault, but parses only responses that changed. For this, the vault's row contains a
 * hash of the responses from which the stored assets were derived.
 */
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readAssets } from "../../shared/discovery/read-assets.ts";
import { readingHash, readListing } from "../../shared/discovery/read-list.ts";
import { ASSET_TYPES, Assets, type AssetType, fingerprint } from "../../shared/inventory/asset.ts";
import { nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { type FakeServer, startFakeServer } from "../azure/odd-server.ts";
import { fakeIdentity, recordingLog, testConfig } from "../azure/services.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, LONG_MS } from "../support/sampling.ts";
import { createScanFixture, FIRST_SUBSCRIPTION, resource, type ScanFixture } from "./scan-fixture.ts";

/** Names of storage accounts in the emulator. Each fixture uses one of its own, so that it starts empty. */
const ACCOUNTS = Array.from({ length: IS_CAMPAIGN ? 450 : 60 }, (_, index) => `account${index}`);
/** After this time, a crashed worker's lease on a vault has expired. */
const LEASE_EXPIRED_MS = 17_000;
let storage: MovedStorage;
let usedAccounts = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let fixture: ScanFixture;
const openFixtures = () => {
  fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!));
  fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one"]);
};
beforeEach(openFixtures);

/** Runs a scan and returns how many responses with details it parsed. */
async function countParsedResponses(mode: "full" | "force" = "full"): Promise<number> {
  fixture.cloud.parsedDetails = 0;
  const { status } = await fixture.scan(mode);
  expect(status).toMatch(/completed|partial/);
  return fixture.cloud.parsedDetails;
}

async function readAsset(type: AssetType, name: string) {
  const found = await fixture.assets.get(`kv-one.${type}.${name}`, { now: 0 });
  return found && withoutKeys(found.asset);
}

const throwAccessDenied = () => {
  throw new CloudFailure("accessDenied", "It is refused.", { remedy: "Fix it." });
};

describe("a full scan", () => {
  beforeEach(() => {
    fixture.cloud.listedEntries = {
      secrets: [{ name: "password" }],
      keys: [{ name: "signing" }, { name: "wrapping" }],
      certificates: [{ name: "www" }],
    };
  });

  test("parses no unchanged response, and stores the time of the read", async () => {
    // Two keys with a rotation policy each, and one certificate. The list of secrets contains all details.
    expect(await countParsedResponses()).toBe(5);
    const before = (await fixture.tables.get(Vaults, VAULTS, vaultKey("kv-one")))!;
    // The details have tuples of the time of the read (Unix seconds) and a hash. This sets all times to 1.
    await fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => {
      const details = Object.entries(row!.details!).map(([type, read]) => [type, read.map(([, hash]) => [1, hash])]);
      return { ...row!, details: Object.fromEntries(details) };
    });
    expect(await countParsedResponses()).toBe(0);
    expect(await countParsedResponses("force")).toBe(0);
    const after = (await fixture.tables.get(Vaults, VAULTS, vaultKey("kv-one")))!;
    expect(after.answers).toEqual(before.answers);
    for (const type of ["key", "certificate"] as const) {
      const [times, hashes] = [0, 1].map((member) => after.details![type]!.map((read) => read[member]));
      expect(Math.min(...(times as number[]))).toBeGreaterThanOrEqual(before.details![type]![0]![0]);
      expect(hashes).toEqual(before.details![type]!.map(([, hash]) => hash));
    }
  });

  test("parses all responses of a type in which one changed", async () => {
    await countParsedResponses();
    fixture.cloud.policy = (name) => ({ lifetimeActions: [{ action: name === "signing" ? "Rotate" : "Notify" }] });
    fixture.cloud.parsedDetails = 0;
    expect((await fixture.scan("full")).tally).toMatchObject({ added: 0, updated: 2, removed: 0 });
    // Both keys and their policies, but not the certificate.
    expect(fixture.cloud.parsedDetails).toBe(4);
    fixture.cloud.policy = () => ({ lifetimeActions: [{ action: "Notify" }] });
    expect((await fixture.scan("full")).tally).toMatchObject({ added: 0, updated: 1, removed: 0 });
    expect(await readAsset("key", "signing")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Notify" }] },
    });
    expect(await countParsedResponses()).toBe(0);
  });

  test("stores the new ID of a vault that moved to another resource group", async () => {
    await countParsedResponses();
    const moved = resource(FIRST_SUBSCRIPTION, "kv-one").id.replace(/resourceGroups\/[^/]+/, "resourceGroups/another");
    fixture.cloud.descriptionChanges["kv-one"] = { id: moved };
    // All assets: a secret, two keys and a certificate.
    expect((await fixture.scan("full")).tally).toMatchObject({ updated: 4 });
    expect(await readAsset("secret", "password")).toMatchObject({ vaultId: moved });
    expect(await countParsedResponses()).toBe(0);
  });

  test("parses all responses again after a scan with a failure", async () => {
    await countParsedResponses();
    const { policy } = fixture.cloud;
    fixture.cloud.policy = throwAccessDenied;
    await countParsedResponses();
    fixture.cloud.policy = policy;
    expect(await countParsedResponses()).toBe(4);
    expect(await countParsedResponses()).toBe(0);
  });

  test("keeps the stored details of a disabled key, which the vault withholds", async () => {
    await countParsedResponses();
    fixture.cloud.listedEntries.keys = [{ name: "signing", enabled: false }, { name: "wrapping" }];
    const { key } = fixture.cloud;
    fixture.cloud.key = (name) => (name === "signing" ? throwAccessDenied() : key(name));
    await countParsedResponses();
    expect(await countParsedResponses()).toBe(0);
    expect(await readAsset("key", "signing")).toMatchObject({ enabled: false, keySize: 3072 });
  });

  test("reverts a partial write of a crashed worker although the responses are unchanged", async () => {
    await countParsedResponses();
    const stored = await fixture.writer.readForUpdate("kv-one");
    const before = (await readAsset("key", "signing"))!;
    const change = {
      type: before.type,
      name: "signing",
      before,
      after: { ...before, keySize: 4096, content: "other" },
    };
    const crashBeforeVaultRows = async () => async () => {
      throw new Error("The worker crashed.");
    };
    const crashing = fixture.writer.apply(stored, withoutKeys(stored.row!), [change], "dead", crashBeforeVaultRows);
    await expect(crashing).rejects.toThrow("The worker crashed.");
    const copy = async () => await fixture.tables.get(Assets, partitions.all, nameKey("key", "signing", "kv-one"));
    expect(await copy()).toMatchObject({ keySize: 4096 });
    await storage.move(LEASE_EXPIRED_MS);
    await fixture.syncClock();
    expect(await countParsedResponses()).toBe(4);
    expect(await copy()).toMatchObject({ keySize: 3072, content: before.content });
    expect(await readAsset("key", "signing")).toEqual(before);
  });

  test("parses the responses again if the hash of the stored assets differs", async () => {
    await countParsedResponses();
    await fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => ({
      ...row!,
      contents: { ...row!.contents, key: "other" },
    }));
    expect(await countParsedResponses()).toBe(4);
    expect(await countParsedResponses()).toBe(0);
  });
});

test(
  "a full scan stores the vault's state after any changes, failures and earlier scans",
  async () => {
    const names = fc.constantFrom("a", "b", "c", "d");
    // One step of a history. It is a scan; a new rotation policy, key or certificate; the objects of a list; or a name that
    // becomes disabled or enabled (`switched`). It can also be a full scan during which responses of one kind are denied
    // (`refused`), or a move to a resource group (`group`).
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom("full", "delta", "scheduled").map((mode) => ({ mode })) },
      { weight: 2, arbitrary: fc.record({ policy: names, action: fc.constantFrom("Rotate", "Notify", "none") }) },
      fc.record({ key: names, keySize: fc.constantFrom(2048, 4096) }),
      fc.record({ certificate: names, subject: fc.constantFrom("CN=x", "CN=y") }),
      fc.record({
        list: fc.constantFrom("keys", "certificates", "secrets"),
        listed: fc.subarray(["a", "b", "c", "d"]),
      }),
      fc.record({ switched: names }),
      fc.record({ refused: fc.constantFrom("key", "policy", "certificate") }),
      fc.constantFrom("one", "two").map((group) => ({ group })),
    );
    /**
     * `unread`: final scans that parsed no response. `read`: those that parsed some. `refused`: scans with denied responses.
     */
    const caseCounts = { unread: 0, read: 0, refused: 0 };
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 30 }), async (steps) => {
        openFixtures();
        const { cloud } = fixture;
        const responses = { key: new Map(), policy: new Map(), certificate: new Map() };
        const disabled = new Set<string>();
        const refused = new Set<string>();
        const existing: Record<string, string[]> = { keys: ["a", "b"], certificates: ["a"], secrets: ["a"] };
        const responseOf = (kind: keyof typeof responses, plain: object) => (name: string) =>
          refused.has(kind) || (disabled.has(name) && kind !== "policy")
            ? throwAccessDenied()
            : (responses[kind].get(name) ?? plain);
        cloud.key = responseOf("key", { version: "1", keyType: "RSA", keySize: 3072 });
        const policyOf = responseOf("policy", { lifetimeActions: [] });
        cloud.policy = (name) => (policyOf(name) === "none" ? undefined : policyOf(name));
        cloud.certificate = responseOf("certificate", { version: "1", subject: "CN=www" });
        const entries = (list: string) =>
          existing[list]!.map((name) => ({ name, enabled: list === "secrets" || !disabled.has(name) }));

        const scan = async (mode: "full" | "delta" | "scheduled") => {
          cloud.listedEntries = {
            keys: entries("keys"),
            certificates: entries("certificates"),
            secrets: entries("secrets"),
          };
          cloud.parsedDetails = 0;
          if (mode !== "scheduled") return await fixture.scan(mode);
          await fixture.discovery.startScheduled("full", "request-3");
          return await fixture.deliverMessages();
        };
        const expectStateOfVault = async () => {
          await scan("full");
          if (cloud.parsedDetails === 0) caseCounts.unread++;
          else caseCounts.read++;
          for (const [list, type] of [
            ["keys", "key"],
            ["certificates", "certificate"],
            ["secrets", "secret"],
          ] as const) {
            for (const name of ["a", "b", "c", "d"]) {
              const stored = await readAsset(type, name);
              expect(stored !== undefined, `${type} ${name}`).toBe(existing[list]!.includes(name));
              if (!stored || (type !== "secret" && disabled.has(name))) continue;
              expect(stored.vaultId).toBe(
                cloud.descriptionChanges["kv-one"]?.id ?? resource(FIRST_SUBSCRIPTION, "kv-one").id,
              );
              if (type === "certificate") expect(stored).toMatchObject(cloud.certificate(name));
              if (type !== "key") continue;
              expect(stored).toMatchObject(cloud.key(name));
              expect(stored.rotationPolicy).toEqual(cloud.policy(name));
            }
          }
        };

        for (const one of steps) {
          if ("mode" in one) await scan(one.mode as "full");
          else if ("policy" in one)
            responses.policy.set(
              one.policy,
              one.action === "none" ? "none" : { lifetimeActions: [{ action: one.action }] },
            );
          else if ("key" in one) responses.key.set(one.key, { version: "1", keyType: "RSA", keySize: one.keySize });
          else if ("certificate" in one)
            responses.certificate.set(one.certificate, { version: "1", subject: one.subject });
          else if ("list" in one) existing[one.list] = one.listed;
          else if ("switched" in one)
            disabled.has(one.switched) ? disabled.delete(one.switched) : disabled.add(one.switched);
          else if ("group" in one)
            cloud.descriptionChanges["kv-one"] = {
              id: resource(FIRST_SUBSCRIPTION, "kv-one").id.replace(
                /resourceGroups\/[^/]+/,
                `resourceGroups/${one.group}`,
              ),
            };
          else {
            refused.add(one.refused);
            await scan("full");
            refused.clear();
            caseCounts.refused++;
          }
        }
        await expectStateOfVault();
        await expectStateOfVault();
      }),
      { numRuns: IS_CAMPAIGN ? 200 : 10, endOnFailure: true },
    );
    expect(Math.min(...Object.values(caseCounts)), JSON.stringify(caseCounts)).toBeGreaterThan(5);
  },
  LONG_MS,
);

/** A self-signed certificate for www.acme.example with an EC key: DER in base64. */
const CERTIFICATE_DER = [
  "MIIBzDCCAXKgAwIBAgIUPPhoxkYRhuOBaXWgbtOFJPvpEMQwCgYIKoZIzj0EAwIwKjEZMBcGA1UEAwwQd3d3LmFjbWUuZXhhbXBs",
  "ZTENMAsGA1UECgwEQWNtZTAeFw0yNjExMjUxODU3NDJaFw0yNzEyMzAxODU3NDJaMCoxGTAXBgNVBAMMEHd3dy5hY21lLmV4YW1w",
  "bGUxDTALBgNVBAoMBEFjbWUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT5ove/5MWfryxkQZHl8q58odgrBGG6KsEVfg0SxMhy",
  "wBwadu+Y46rVU4v/w43OWiCKwJdDTdhhRc1vzXSb7KOko3YwdDAdBgNVHQ4EFgQU9DpCNUuBe6avqf6g+GEbAhmTcyQwHwYDVR0j",
  "BBgwFoAU9DpCNUuBe6avqf6g+GEbAhmTcyQwDwYDVR0TAQH/BAUwAwEB/zAhBgNVHREEGjAYghB3d3cuYWNtZS5leGFtcGxlhwQK",
  "AAABMAoGCCqGSM49BAMCA0gAMEUCIQD6Rdnthi1amLvsLfqxVSrJ8M9M/5McSNTWsP3kz0B6MgIgSQrx7V4zn8wJcE8SiLdFlUkn",
  "+muZzD3wAruTURQn9UE=",
].join("");

/**
 * Vaults' rows contain hashes of responses. If this test fails because the code now derives other assets from the same
 * responses, increase READING_VERSION in read-list.ts, so that the next full scan parses them again. Then update both hashes
 * below.
 */
test("the same responses lead to the same assets, or the version in their hash has changed", async () => {
  const server: FakeServer = await startFakeServer();
  const address = `https://kv-one.vault.localhost:${server.port}`;
  const attributes = {
    enabled: true,
    nbf: 1_700_000_000,
    exp: 1_900_000_000,
    created: 1_690_000_000,
    updated: 1_695_000_000,
  };
  const tags = { owner: "payments", team: "one" };
  const id = (list: string, ...segments: string[]) => [address, list, ...segments].join("/");
  const policy = {
    key_props: { kty: "EC", crv: "P-256" },
    x509_props: { subject: "CN=www.acme.example", validity_months: 13 },
    issuer: { name: "Self" },
    lifetime_actions: [{ action: { action_type: "AutoRenew" }, trigger: { days_before_expiry: 30 } }],
  };
  const x5t = "Yjg2ZTUwNDQ3ZjQ0ZTRiYTZj";
  const bodies: Record<string, object> = {
    "/secrets": { value: [{ id: id("secrets", "a"), attributes, tags, contentType: "text/plain" }] },
    "/keys": { value: ["rsa", "ec"].map((name) => ({ kid: id("keys", name), attributes, tags })) },
    "/certificates": { value: [{ id: id("certificates", "www"), attributes, tags, x5t }] },
    "/keys/rsa": { key: { kid: id("keys", "rsa", "1"), kty: "RSA", key_ops: ["sign"], n: "0".repeat(342) } },
    "/keys/ec": { key: { kid: id("keys", "ec", "2"), kty: "EC-HSM", crv: "P-384" } },
    "/keys/rsa/rotationpolicy": {
      lifetimeActions: [{ action: { type: "Rotate" }, trigger: { timeAfterCreate: "P1Y" } }],
      attributes: { expiryTime: "P2Y" },
    },
    "/certificates/www": { id: id("certificates", "www", "3"), attributes, tags, x5t, cer: CERTIFICATE_DER, policy },
  };
  server.setResponse((request, response) => {
    const body = bodies[new URL(request.url!, address).pathname.replace(/\/$/, "")];
    const error = { error: { code: "KeyRotationPolicyNotFound" } };
    response.writeHead(body ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(body ?? error));
  });
  try {
    const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
    const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog() });
    const vault = { name: "kv-one", id: "/subscriptions/s/vaults/kv-one", subscriptionId: "s", vaultUri: address };
    const client = vaults.open(vault);
    const { signal } = new AbortController();
    const options = {
      storedAssets: async () => new Map(),
      refresh: () => true,
      now: "2026-11-25T00:00:00.000Z",
      signal,
    };
    const assets = [];
    for (const type of ASSET_TYPES) {
      const listed = await readListing(client, type, signal);
      assets.push(...(await readAssets(client, type, listed, vault as VaultRecord, options))!.assets);
    }
    expect(assets.map(({ name }) => name)).toEqual(["www", "ec", "rsa", "a"]);
    expect({
      reading: readingHash(vault as VaultRecord, { listing: "listing", contents: "contents", answers: "answers" }),
      assets: fingerprint(assets),
    }).toEqual({ reading: "CnxkxMgagwSpe-82EBfE_J", assets: "fDSHYXCI9d6fT-f74O0AH5" });
  } finally {
    await server.stop();
  }
});
