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
import { type OddServer, startOddServer } from "../azure/odd-server.ts";
import { plainIdentity, recordingLog, testConfig } from "../azure/services.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, LONG_MS } from "../support/sampling.ts";
import { createScanFixture, HERE, resource, type ScanFixture } from "./scan-fixture.ts";

/** A full scan requests all details. Responses with the same hash as the stored ones are not parsed again. */

const ACCOUNTS = Array.from({ length: IS_CAMPAIGN ? 450 : 60 }, (_, at) => `account${at}`);
const LEASE_ENDED_MS = 17_000;
let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let fixture: ScanFixture;
const openFixtures = () => {
  fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[used++]!));
  fixture.cloud.vaults.set(HERE, ["kv-one"]);
};
beforeEach(openFixtures);

/** Runs a full scan and returns how many responses it parsed. */
async function readBy(mode: "full" | "force" = "full"): Promise<number> {
  fixture.cloud.read = 0;
  const { status } = await fixture.scan(mode);
  expect(status).toMatch(/completed|partial/);
  return fixture.cloud.read;
}

async function asset(type: AssetType, name: string) {
  const found = await fixture.assets.get(`kv-one.${type}.${name}`, { now: 0 });
  return found && withoutKeys(found.asset);
}

const refuse = () => {
  throw new CloudFailure("accessDenied", "It is refused.", { remedy: "Mend it." });
};

describe("a full scan", () => {
  beforeEach(() => {
    fixture.cloud.listed = {
      secrets: [{ name: "password" }],
      keys: [{ name: "signing" }, { name: "wrapping" }],
      certificates: [{ name: "www" }],
    };
  });

  test("parses no response that is unchanged, and stores that the details were read now", async () => {
    expect(await readBy()).toBe(5);
    const before = (await fixture.tables.get(Vaults, VAULTS, vaultKey("kv-one")))!;
    await fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => {
      const details = Object.entries(row!.details!).map(([type, read]) => [type, read.map(([, hash]) => [1, hash])]);
      return { ...row!, details: Object.fromEntries(details) };
    });
    expect(await readBy()).toBe(0);
    expect(await readBy("force")).toBe(0);
    const after = (await fixture.tables.get(Vaults, VAULTS, vaultKey("kv-one")))!;
    expect(after.answers).toEqual(before.answers);
    for (const type of ["key", "certificate"] as const) {
      const [at, hashes] = [0, 1].map((member) => after.details![type]!.map((read) => read[member]));
      expect(Math.min(...(at as number[]))).toBeGreaterThanOrEqual(before.details![type]![0]![0]);
      expect(hashes).toEqual(before.details![type]!.map(([, hash]) => hash));
    }
  });

  test("parses the responses of a type in which one changed without a new version, and writes only that asset", async () => {
    await readBy();
    fixture.cloud.policy = (name) => ({ lifetimeActions: [{ action: name === "signing" ? "Rotate" : "Notify" }] });
    fixture.cloud.read = 0;
    expect((await fixture.scan("full")).tally).toMatchObject({ added: 0, updated: 2, removed: 0 });
    expect(fixture.cloud.read).toBe(4);
    fixture.cloud.policy = (name) => ({ lifetimeActions: [{ action: name === "signing" ? "Notify" : "Notify" }] });
    expect((await fixture.scan("full")).tally).toMatchObject({ added: 0, updated: 1, removed: 0 });
    expect(await asset("key", "signing")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Notify" }] },
    });
    expect(await readBy()).toBe(0);
  });

  test("finds a vault that moved to another resource group", async () => {
    await readBy();
    const moved = resource(HERE, "kv-one").id.replace(/resourceGroups\/[^/]+/, "resourceGroups/another");
    fixture.cloud.described["kv-one"] = { id: moved };
    expect((await fixture.scan("full")).tally).toMatchObject({ updated: 4 });
    expect(await asset("secret", "password")).toMatchObject({ vaultId: moved });
    expect(await readBy()).toBe(0);
  });

  test("parses all responses after a failure, and none after that", async () => {
    await readBy();
    const { policy } = fixture.cloud;
    fixture.cloud.policy = refuse;
    await readBy();
    fixture.cloud.policy = policy;
    expect(await readBy()).toBe(4);
    expect(await readBy()).toBe(0);
  });

  test("does not treat withheld details of a disabled key as a change, nor the stored ones as deleted", async () => {
    await readBy();
    fixture.cloud.listed.keys = [{ name: "signing", enabled: false }, { name: "wrapping" }];
    const { key } = fixture.cloud;
    fixture.cloud.key = (name) => (name === "signing" ? refuse() : key(name));
    await readBy();
    expect(await readBy()).toBe(0);
    expect(await asset("key", "signing")).toMatchObject({ enabled: false, keySize: 3072 });
  });

  test("reverts a half-finished write of a crashed worker, although the responses are those from before it", async () => {
    await readBy();
    const known = await fixture.writer.readForUpdate("kv-one");
    const before = (await asset("key", "signing"))!;
    const change = {
      type: before.type,
      name: "signing",
      before,
      after: { ...before, keySize: 4096, content: "other" },
    };
    const dies = async () => async () => {
      throw new Error("It died.");
    };
    const crashing = fixture.writer.apply(known, withoutKeys(known.row!), [change], "dead", dies);
    await expect(crashing).rejects.toThrow("It died.");
    const copy = async () => await fixture.tables.get(Assets, partitions.all, nameKey("key", "signing", "kv-one"));
    expect(await copy()).toMatchObject({ keySize: 4096 });
    await storage.move(LEASE_ENDED_MS);
    await fixture.clockCatchesUp();
    expect(await readBy()).toBe(4);
    expect(await copy()).toMatchObject({ keySize: 3072, content: before.content });
    expect(await asset("key", "signing")).toEqual(before);
  });

  test("also compares the assets in the vault's row: a hash of other assets does not count", async () => {
    await readBy();
    await fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => ({
      ...row!,
      contents: { ...row!.contents, key: "other" },
    }));
    expect(await readBy()).toBe(4);
    expect(await readBy()).toBe(0);
  });
});

test(
  "stores the state of the vault after changes of every kind, failures and scans of every mode",
  async () => {
    const names = fc.constantFrom("a", "b", "c", "d");
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom("full", "delta", "scheduled").map((mode) => ({ mode })) },
      { weight: 2, arbitrary: fc.record({ policy: names, action: fc.constantFrom("Rotate", "Notify", "none") }) },
      fc.record({ key: names, keySize: fc.constantFrom(2048, 4096) }),
      fc.record({ certificate: names, subject: fc.constantFrom("CN=x", "CN=y") }),
      fc.record({ list: fc.constantFrom("keys", "certificates", "secrets"), of: fc.subarray(["a", "b", "c", "d"]) }),
      fc.record({ switched: names }),
      fc.record({ refused: fc.constantFrom("key", "policy", "certificate") }),
      fc.constantFrom("one", "two").map((group) => ({ group })),
    );
    const reached = { unread: 0, read: 0, refused: 0 };
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 30 }), async (steps) => {
        openFixtures();
        const { cloud } = fixture;
        const said = { key: new Map(), policy: new Map(), certificate: new Map() };
        const off = new Set<string>();
        const refused = new Set<string>();
        const has: Record<string, string[]> = { keys: ["a", "b"], certificates: ["a"], secrets: ["a"] };
        const answering = (kind: keyof typeof said, plain: object) => (name: string) =>
          refused.has(kind) || (off.has(name) && kind !== "policy") ? refuse() : (said[kind].get(name) ?? plain);
        cloud.key = answering("key", { version: "1", keyType: "RSA", keySize: 3072 });
        const policyOf = answering("policy", { lifetimeActions: [] });
        cloud.policy = (name) => (policyOf(name) === "none" ? undefined : policyOf(name));
        cloud.certificate = answering("certificate", { version: "1", subject: "CN=www" });
        const entries = (list: string) =>
          has[list]!.map((name) => ({ name, enabled: list === "secrets" || !off.has(name) }));

        const scan = async (mode: "full" | "delta" | "scheduled") => {
          cloud.listed = { keys: entries("keys"), certificates: entries("certificates"), secrets: entries("secrets") };
          cloud.read = 0;
          if (mode !== "scheduled") return await fixture.scan(mode);
          await fixture.discovery.startScheduled("full", "request-3");
          return await fixture.deliver();
        };
        const asTheVaultHas = async () => {
          await scan("full");
          if (cloud.read === 0) reached.unread++;
          else reached.read++;
          for (const [list, type] of [
            ["keys", "key"],
            ["certificates", "certificate"],
            ["secrets", "secret"],
          ] as const) {
            for (const name of ["a", "b", "c", "d"]) {
              const stands = await asset(type, name);
              expect(stands !== undefined, `${type} ${name}`).toBe(has[list]!.includes(name));
              if (!stands || (type !== "secret" && off.has(name))) continue;
              expect(stands.vaultId).toBe(cloud.described["kv-one"]?.id ?? resource(HERE, "kv-one").id);
              if (type === "certificate") expect(stands).toMatchObject(cloud.certificate(name));
              if (type !== "key") continue;
              expect(stands).toMatchObject(cloud.key(name));
              expect(stands.rotationPolicy).toEqual(cloud.policy(name));
            }
          }
        };

        for (const one of steps) {
          if ("mode" in one) await scan(one.mode as "full");
          else if ("policy" in one)
            said.policy.set(one.policy, one.action === "none" ? "none" : { lifetimeActions: [{ action: one.action }] });
          else if ("key" in one) said.key.set(one.key, { version: "1", keyType: "RSA", keySize: one.keySize });
          else if ("certificate" in one) said.certificate.set(one.certificate, { version: "1", subject: one.subject });
          else if ("list" in one) has[one.list] = one.of;
          else if ("switched" in one) off.has(one.switched) ? off.delete(one.switched) : off.add(one.switched);
          else if ("group" in one)
            cloud.described["kv-one"] = {
              id: resource(HERE, "kv-one").id.replace(/resourceGroups\/[^/]+/, `resourceGroups/${one.group}`),
            };
          else {
            refused.add(one.refused);
            await scan("full");
            refused.clear();
            reached.refused++;
          }
        }
        await asTheVaultHas();
        await asTheVaultHas();
      }),
      { numRuns: IS_CAMPAIGN ? 200 : 10, endOnFailure: true },
    );
    expect(Math.min(...Object.values(reached)), JSON.stringify(reached)).toBeGreaterThan(5);
  },
  LONG_MS,
);

/** A self-signed certificate of www.acme.example, EC. */
const CER = [
  "MIIBzDCCAXKgAwIBAgIUPPhoxkYRhuOBaXWgbtOFJPvpEMQwCgYIKoZIzj0EAwIwKjEZMBcGA1UEAwwQd3d3LmFjbWUuZXhhbXBs",
  "ZTENMAsGA1UECgwEQWNtZTAeFw0yNjExMjUxODU3NDJaFw0yNzEyMzAxODU3NDJaMCoxGTAXBgNVBAMMEHd3dy5hY21lLmV4YW1w",
  "bGUxDTALBgNVBAoMBEFjbWUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT5ove/5MWfryxkQZHl8q58odgrBGG6KsEVfg0SxMhy",
  "wBwadu+Y46rVU4v/w43OWiCKwJdDTdhhRc1vzXSb7KOko3YwdDAdBgNVHQ4EFgQU9DpCNUuBe6avqf6g+GEbAhmTcyQwHwYDVR0j",
  "BBgwFoAU9DpCNUuBe6avqf6g+GEbAhmTcyQwDwYDVR0TAQH/BAUwAwEB/zAhBgNVHREEGjAYghB3d3cuYWNtZS5leGFtcGxlhwQK",
  "AAABMAoGCCqGSM49BAMCA0gAMEUCIQD6Rdnthi1amLvsLfqxVSrJ8M9M/5McSNTWsP3kz0B6MgIgSQrx7V4zn8wJcE8SiLdFlUkn",
  "+muZzD3wAruTURQn9UE=",
].join("");

/**
 * Hashes of responses are stored in the vaults' rows. If a new version derives other assets from the same responses, raise
 * READING in read-list.ts, so that the next full scan parses them. Then both lines here change.
 */
test("the same responses lead to the same assets while their hash is the same", async () => {
  const server: OddServer = await startOddServer();
  const address = `https://kv-one.vault.localhost:${server.port}`;
  const attributes = {
    enabled: true,
    nbf: 1_700_000_000,
    exp: 1_900_000_000,
    created: 1_690_000_000,
    updated: 1_695_000_000,
  };
  const tags = { owner: "payments", team: "one" };
  const id = (list: string, ...of: string[]) => [address, list, ...of].join("/");
  const policy = {
    key_props: { kty: "EC", crv: "P-256" },
    x509_props: { subject: "CN=www.acme.example", validity_months: 13 },
    issuer: { name: "Self" },
    lifetime_actions: [{ action: { action_type: "AutoRenew" }, trigger: { days_before_expiry: 30 } }],
  };
  const x5t = "Yjg2ZTUwNDQ3ZjQ0ZTRiYTZj";
  const answers: Record<string, object> = {
    "/secrets": { value: [{ id: id("secrets", "a"), attributes, tags, contentType: "text/plain" }] },
    "/keys": { value: ["rsa", "ec"].map((name) => ({ kid: id("keys", name), attributes, tags })) },
    "/certificates": { value: [{ id: id("certificates", "www"), attributes, tags, x5t }] },
    "/keys/rsa": { key: { kid: id("keys", "rsa", "1"), kty: "RSA", key_ops: ["sign"], n: "0".repeat(342) } },
    "/keys/ec": { key: { kid: id("keys", "ec", "2"), kty: "EC-HSM", crv: "P-384" } },
    "/keys/rsa/rotationpolicy": {
      lifetimeActions: [{ action: { type: "Rotate" }, trigger: { timeAfterCreate: "P1Y" } }],
      attributes: { expiryTime: "P2Y" },
    },
    "/certificates/www": { id: id("certificates", "www", "3"), attributes, tags, x5t, cer: CER, policy },
  };
  server.answer((request, response) => {
    const body = answers[new URL(request.url!, address).pathname.replace(/\/$/, "")];
    const error = { error: { code: "KeyRotationPolicyNotFound" } };
    response.writeHead(body ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(body ?? error));
  });
  try {
    const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
    const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog() });
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
    }).toEqual({ reading: "kc8GbhEPobgCyR3vnh51mW", assets: "G-jX8ZjB3Tbz9bHPslN-Rq" });
  } finally {
    await server.stop();
  }
});
