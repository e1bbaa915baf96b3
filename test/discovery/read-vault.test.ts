/*
 * Scans of a vault whose lists or details can be read only in part, and scheduled full scans. A scheduled full scan reads only
 * some details: assets are divided into seven parts ("sevenths"), and a part is read again after seven days.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { assetView } from "../../shared/inventory/api.ts";
import { type AssetRecord, Assets, contentHash } from "../../shared/inventory/asset.ts";
import { expiryKey, nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { seventhOf } from "../../shared/inventory/details.ts";
import { type ReadSevenths, VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import type { AssetChange } from "../../shared/inventory/write.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { createScanFixture, FIRST_SUBSCRIPTION, firstThousand, type ScanFixture } from "./scan-fixture.ts";

/** Names of storage accounts in the emulator. Each fixture uses one of its own, so that it starts empty. */
const ACCOUNTS = Array.from({ length: 32 }, (_, index) => `account${index}`);

let azurite: TestStorage;
let usedAccounts = 0;
beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
});
afterAll(() => azurite?.stop());

let fixture: ScanFixture;
beforeEach(() => {
  fixture = createScanFixture(azurite.connectionString(ACCOUNTS[usedAccounts++]!));
  fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one"]);
});

const throwFailure = (code: CloudFailure["code"]) => () => {
  throw new CloudFailure(code, `It is ${code}.`, { remedy: "Fix it." });
};

async function runScan(mode: "full" | "delta") {
  const { scanId, status, tally } = await fixture.scan(mode);
  const { page } = await fixture.discovery.results(scanId, firstThousand);
  const codes = page.items.flatMap(({ failures }) => failures.map(({ list, code }) => `${list}: ${code}`));
  return { status, codes, added: tally.added, updated: tally.updated, removed: tally.removed };
}
const NO_CHANGES = { added: 0, updated: 0, removed: 0 };

/** Returns the asset as the API shows it. */
async function readView(id: string) {
  const moment = { now: Date.parse("2026-11-21T10:00:00Z"), criticalDays: 7, warningDays: 30 };
  return assetView((await fixture.assets.get(id, moment))!, moment, "owner");
}

async function readAsset(type: "secret" | "key" | "certificate", name: string) {
  const found = await fixture.assets.get(`kv-one.${type}.${name}`, { now: 0 });
  return found && withoutKeys(found.asset);
}

describe("a rotation policy that can't be read affects only itself", () => {
  beforeEach(() => {
    fixture.cloud.listedEntries = { keys: [{ name: "signing" }, { name: "wrapping" }] };
  });

  test("the key's other details are stored, and one failure is recorded", async () => {
    fixture.cloud.policy = throwFailure("accessDenied");
    expect(await runScan("full")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    const key = await readAsset("key", "signing");
    expect(key).toMatchObject({ keyType: "RSA", keySize: 3072, version: "1" });
    expect(key).not.toHaveProperty("rotationPolicy", expect.anything());
    // An empty hash means that details were not read. So the compliance check does not report a missing policy.
    expect(key?.listing).toBe("");
  });

  test("a delta scan stores the policy once it can be read", async () => {
    fixture.cloud.policy = throwFailure("accessDenied");
    await runScan("full");
    expect(await runScan("delta")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    fixture.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    expect(await runScan("delta")).toMatchObject({ status: "completed", updated: 2 });
    expect(await readAsset("key", "wrapping")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
    expect(await runScan("delta")).toMatchObject({ status: "completed", ...NO_CHANGES });
  });

  test("the policy of an earlier scan stays", async () => {
    fixture.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    await runScan("full");
    fixture.cloud.policy = throwFailure("unreachable");
    expect(await runScan("full")).toMatchObject({ codes: ["rotationPolicies: unreachable"], ...NO_CHANGES });
    expect(await readAsset("key", "signing")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
  });
});

describe("who renews a certificate", () => {
  const DAY = 86_400;
  const NOW = Math.floor(Date.now() / 1000);
  /** Returns versions of a certificate with these ages in days, the newest first. Each is valid for 90 days. */
  const versions = (...ages: number[]) =>
    ages.map((age, index) => ({
      version: String(ages.length - index),
      createdOn: NOW - age * DAY,
      notBefore: NOW - age * DAY,
      expiresOn: NOW + (90 - age) * DAY,
    }));
  /**
   * Makes the vault contain one certificate, `www`, with versions of these ages. Two gaps of about the same length, such as
   * between the ages 1, 62 and 124, prove an observed renewer. One gap does not.
   */
  const putCertificate = (ages: number[]) => {
    const [newest] = versions(...ages);
    fixture.cloud.versionsOf = () => versions(...ages);
    fixture.cloud.certificate = () => ({ version: newest!.version, subject: "CN=www", issuerName: "Unknown" });
    fixture.cloud.listedEntries = { certificates: [{ name: "www", ...newest }] };
  };

  test("follows from its versions, which are listed once for each new version", async () => {
    putCertificate([10, 73]);
    await runScan("full");
    expect((await readView("kv-one.certificate.www")).renewal).toMatchObject({ renewedBy: "none", windowEnd: null });
    putCertificate([1, 62, 124]);
    expect(await runScan("delta")).toMatchObject({ updated: 1 });
    const { renewal } = await readView("kv-one.certificate.www");
    expect(renewal).toMatchObject({ renewedBy: "observed", source: "cadence" });
    expect(renewal!.lastRenewals).toHaveLength(2);
    expect(fixture.cloud.versionListings).toBe(2);
    // Neither an unchanged certificate nor a changed tag needs another call.
    await runScan("delta");
    await runScan("full");
    fixture.cloud.listedEntries.certificates![0]!.tags = { Issuer: "Acmebot" };
    expect(await runScan("delta")).toMatchObject({ updated: 1 });
    expect(fixture.cloud.versionListings).toBe(2);
    expect((await readView("kv-one.certificate.www")).renewal).toMatchObject({
      renewedBy: "acmebot",
      source: "cadence",
      lastRenewals: renewal!.lastRenewals,
    });
  });

  test("is unknown while versions can't be read, and the next scan reads them", async () => {
    putCertificate([1, 62, 124]);
    fixture.cloud.versionsOf = throwFailure("throttled");
    expect(await runScan("full")).toMatchObject({ status: "partial", codes: ["certificates: throttled"], added: 1 });
    expect(await readView("kv-one.certificate.www")).toMatchObject({ stale: true, renewal: { renewedBy: "none" } });
    putCertificate([1, 62, 124]);
    expect(await runScan("delta")).toMatchObject({ status: "completed" });
    expect(await readView("kv-one.certificate.www")).toMatchObject({
      stale: false,
      renewal: { renewedBy: "observed" },
    });
    await runScan("delta");
    expect(fixture.cloud.versionListings).toBe(2);
  });

  test("follows from all versions after a scan that could not list those of a new version", async () => {
    putCertificate([70, 131]);
    await runScan("full");
    putCertificate([8, 70, 131]);
    fixture.cloud.versionsOf = throwFailure("throttled");
    expect(await runScan("delta")).toMatchObject({ status: "partial" });
    putCertificate([8, 70, 131]);
    expect(await runScan("delta")).toMatchObject({ status: "completed" });
    const { renewal } = await readView("kv-one.certificate.www");
    expect(renewal).toMatchObject({ renewedBy: "observed" });
    expect(renewal!.lastRenewals).toHaveLength(2);
    await runScan("delta");
    expect(fixture.cloud.versionListings).toBe(3);
  });

  test("is found for stored certificates of an earlier version when their details are read again", async () => {
    putCertificate([1, 62, 124]);
    await runScan("full");
    // Stores the certificate as an earlier version of the service did, without anything about its renewals.
    const { renewal: _r, versionDates: _v, issuerName: _i, ...earlier } = (await readAsset("certificate", "www"))!;
    const { content: _, firstSeenAt, ...facts } = earlier;
    const stored = await fixture.writer.readForUpdate("kv-one");
    const { certificateRenewals: _c, details: _d, ...row } = withoutKeys(stored.row!);
    const after = { ...facts, firstSeenAt, content: contentHash(facts) };
    const before = (await readAsset("certificate", "www"))!;
    const change: AssetChange = { type: "certificate", name: "www", before, after };
    // Another hash than that of the stored assets, so that the next full scan derives them again.
    const contents = { ...row.contents, certificate: "earlier" };
    await fixture.writer.apply(stored, { ...row, contents }, [change], "test", async () => async () => {});
    expect((await readView("kv-one.certificate.www")).renewal?.renewedBy).toBe("none");
    expect(await runScan("full")).toMatchObject({ updated: 1 });
    expect((await readView("kv-one.certificate.www")).renewal?.renewedBy).toBe("observed");
    expect(await fixture.assetLines({ status: "healthy", type: "certificate" })).toHaveLength(1);
  });
});

describe("a failure to read a certificate's details", () => {
  test("does not change a certificate if it is temporary, and neither does its recovery", async () => {
    await runScan("full");
    const before = await readAsset("certificate", "www");
    fixture.cloud.certificate = throwFailure("unreachable");
    expect(await runScan("full")).toEqual({ status: "partial", codes: ["certificates: unreachable"], ...NO_CHANGES });
    expect(await readAsset("certificate", "www")).toMatchObject({ ...before, listing: "" });
    let detailReads = 0;
    fixture.cloud.certificate = () => {
      detailReads++;
      return { version: "1", subject: "CN=www" };
    };
    expect(await runScan("delta")).toEqual({ status: "completed", codes: [], ...NO_CHANGES });
    expect(detailReads).toBe(1);
    expect(await readAsset("certificate", "www")).toEqual(before);
  });

  test("keeps the old details of a renewed certificate until the new ones can be read", async () => {
    await runScan("full");
    fixture.cloud.listedEntries.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    fixture.cloud.certificate = throwFailure("throttled");
    const { expiresOn } = await readView("kv-one.certificate.www");
    expect(await runScan("delta")).toEqual({ status: "partial", codes: ["certificates: throttled"], ...NO_CHANGES });
    // The asset is marked as outdated until then.
    expect(await readView("kv-one.certificate.www")).toMatchObject({ stale: true, expiresOn });
    fixture.cloud.certificate = () => ({ version: "2", subject: "CN=www" });
    expect(await runScan("delta")).toMatchObject({ status: "completed", updated: 1 });
    expect(await readAsset("certificate", "www")).toMatchObject({ version: "2", expiresOn: 2_000_000_000 });
    expect((await readView("kv-one.certificate.www")).stale).toBe(false);
    expect(await runScan("full")).toMatchObject({ status: "completed", ...NO_CHANGES });
  });

  test("leaves only the fields of the list up to date if access to the details is denied", async () => {
    await runScan("full");
    fixture.cloud.listedEntries.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    fixture.cloud.certificate = throwFailure("accessDenied");
    expect(await runScan("delta")).toMatchObject({ codes: ["certificates: accessDenied"], updated: 1 });
    expect(await readAsset("certificate", "www")).toMatchObject({ version: "1", expiresOn: 2_000_000_000 });
  });
});

describe("a scheduled full scan", () => {
  const NAMES = Array.from({ length: 21 }, (_, index) => `www-${index}`);
  const namesInSeventh = (seventh: number) => NAMES.filter((name) => seventhOf("kv-one", name) === seventh);
  /** The part of the certificates that tests make due: the part of the first certificate. */
  const dueSeventh = seventhOf("kv-one", NAMES[0]!);
  let readNames: string[] = [];
  beforeEach(() => {
    fixture.cloud.listedEntries = { certificates: NAMES.map((name) => ({ name })) };
    fixture.cloud.certificate = (name) => {
      readNames.push(name);
      return { version: "1", subject: "CN=www", autoRenew: true };
    };
  });

  /** Runs a scheduled full scan. Returns the names of the certificates whose details were read. */
  async function runScheduledScan(): Promise<string[]> {
    readNames = [];
    await fixture.discovery.startScheduled("full", "request-3");
    await fixture.deliverMessages();
    return readNames.sort();
  }
  async function runFullScan(): Promise<string[]> {
    readNames = [];
    await fixture.scan("full");
    return readNames.sort();
  }
  /** Changes the stored times of the last reads of details. */
  const changeReadTimes = (change: (read: ReadSevenths) => ReadSevenths | undefined) =>
    fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => ({
      ...row!,
      details: { ...row!.details, certificate: change(row!.details!.certificate!) },
    }));
  /** Moves the last read of one seventh back by a number of days. */
  const ageDueSeventh = (days: number) =>
    changeReadTimes((read) =>
      read.map(([at, hash], seventh) => [seventh === dueSeventh ? at - days * DAY_SECONDS : at, hash]),
    );

  test("reads only details that are due, while a requested full scan reads all", async () => {
    expect(await runFullScan()).toEqual([...NAMES].sort());
    expect(await runScheduledScan()).toEqual([]);
    await ageDueSeventh(8);
    expect(await runScheduledScan()).toEqual(namesInSeventh(dueSeventh).sort());
    expect(await runScheduledScan()).toEqual([]);
    expect(await runFullScan()).toEqual([...NAMES].sort());
    // The previous version stored no times of reads.
    await changeReadTimes(() => undefined);
    expect((await readView("kv-one.certificate.www-0")).detailsReadAt).toBeNull();
    expect(await runScheduledScan()).toEqual([...NAMES].sort());
    expect(await runScheduledScan()).toEqual([]);
  });

  test("finds changes that no list shows", async () => {
    await runFullScan();
    await ageDueSeventh(8);
    const first = await readView("kv-one.certificate.www-0");
    const transactions = vi.spyOn(fixture.writer, "apply");
    const rows = vi.spyOn(fixture.writer, "assetsOf");
    await runScheduledScan();
    expect([transactions.mock.calls.length, rows.mock.calls.length]).toEqual([0, 0]);
    const read = await readView("kv-one.certificate.www-0");
    expect(first.detailsReadAt).toBe(first.firstSeenAt);
    // Times of reads are stored in whole seconds.
    expect(Date.parse(read.detailsReadAt!)).toBeGreaterThanOrEqual(Date.parse(first.detailsReadAt!) - 1000);

    fixture.cloud.certificate = (name) => {
      readNames.push(name);
      return { version: "1", subject: "CN=www", autoRenew: false };
    };
    await runScheduledScan();
    expect((await readView("kv-one.certificate.www-0")).autoRenew).toBe(true);
    await ageDueSeventh(8);
    expect(await runScheduledScan()).toEqual(namesInSeventh(dueSeventh).sort());
    for (const name of NAMES) {
      expect((await readView(`kv-one.certificate.${name}`)).autoRenew).toBe(!namesInSeventh(dueSeventh).includes(name));
    }
    expect(await runScheduledScan()).toEqual([]);
  });

  test("reads details again that could not be read", async () => {
    await runFullScan();
    await ageDueSeventh(8);
    const { certificate } = fixture.cloud;
    fixture.cloud.certificate = (name) => {
      readNames.push(name);
      return name === NAMES[0] ? throwFailure("unreachable")() : certificate(name);
    };
    await runScheduledScan();
    expect(await readView("kv-one.certificate.www-0")).toMatchObject({ stale: true, detailsReadAt: null });
    fixture.cloud.certificate = certificate;
    expect(await runScheduledScan()).toEqual([NAMES[0]]);
    expect((await readView("kv-one.certificate.www-0")).stale).toBe(false);
    expect(await runScheduledScan()).toEqual([]);
  });
});

describe("assets that another program changed in all their rows", () => {
  const partitionKeys = [partitions.all, partitions.subscription(FIRST_SUBSCRIPTION), partitions.vault("kv-one")];
  /** Changes members of an asset in its rows by name and by expiry, without its hash. */
  async function tamper(type: "secret" | "certificate", name: string, change: Partial<AssetRecord>) {
    const asset = (await readAsset(type, name))!;
    for (const partitionKey of partitionKeys) {
      for (const key of [nameKey(type, name, "kv-one"), expiryKey(type, asset.expiresOn, name, "kv-one")])
        await fixture.tables.put(Assets, partitionKey, key, { ...asset, ...change });
    }
  }
  const storedRows = async (type: "secret" | "certificate", name: string) =>
    await Promise.all(
      partitionKeys.map(async (key) => (await fixture.tables.get(Assets, key, nameKey(type, name, "kv-one")))!),
    );

  test("are written again by a full scan that a user requested, and the change log stays unchanged", async () => {
    await runScan("full");
    await tamper("secret", "password", { contentType: "text/tampered" });
    await tamper("certificate", "www", { subject: "CN=tampered" });
    expect(await runScan("delta")).toMatchObject({ status: "completed", ...NO_CHANGES });
    expect(await readAsset("secret", "password")).toMatchObject({ contentType: "text/tampered" });
    expect(await runScan("full")).toMatchObject({ status: "completed", ...NO_CHANGES });
    for (const row of await storedRows("secret", "password")) expect(row.contentType).toBeUndefined();
    for (const row of await storedRows("certificate", "www")) expect(row.subject).toBe("CN=www");
  });

  test("and rows that another program removed or added are restored and removed", async () => {
    await runScan("full");
    const asset = (await readAsset("secret", "password"))!;
    const vaultPartition = partitions.vault("kv-one");
    await fixture.tables.remove(Assets, vaultPartition, nameKey("secret", "password", "kv-one"));
    await fixture.tables.put(Assets, vaultPartition, nameKey("secret", "ghost", "kv-one"), { ...asset, name: "ghost" });
    await runScan("full");
    expect(await readAsset("secret", "password")).toMatchObject({ name: "password" });
    const rows = await fixture.writer.assetsOf("kv-one", "secret");
    expect([...rows.keys()]).toEqual(["password"]);
  });

  test("cost a requested full scan one read per list, and other scans none", async () => {
    await runScan("full");
    const reads = vi.spyOn(fixture.writer, "assetsOf");
    const writes = vi.spyOn(fixture.writer, "apply");
    const readsOf = async (scan: () => Promise<unknown>) => {
      reads.mockClear();
      await scan();
      return reads.mock.calls.map(([, type]) => type).sort();
    };
    expect(await readsOf(() => runScan("full"))).toEqual(["certificate", "key", "secret"]);
    expect(await readsOf(() => runScan("delta"))).toEqual([]);
    const scheduled = async () => {
      await fixture.discovery.startScheduled("full", "request-3");
      await fixture.deliverMessages();
    };
    expect(await readsOf(scheduled)).toEqual([]);
    expect(writes).not.toHaveBeenCalled();
  });
});

test("a list that can't be parsed leaves its assets unchanged", async () => {
  fixture.cloud.listedEntries.certificates = [{ name: "api" }, { name: "www" }];
  await runScan("full");
  fixture.cloud.listedEntries = { secrets: [{ name: "another" }], certificates: [{ name: "api" }] };
  fixture.cloud.certificatesFailure = new CloudFailure("badResponse", "An entry is odd.", { remedy: "Check it." });
  expect(await runScan("full")).toEqual({
    status: "partial",
    codes: ["certificates: badResponse"],
    added: 1,
    updated: 0,
    removed: 1,
  });
  expect(await readAsset("certificate", "www")).toMatchObject({ subject: "CN=www" });
  expect(await readAsset("secret", "another")).toBeDefined();
  fixture.cloud.certificatesFailure = undefined;
  expect(await runScan("delta")).toMatchObject({ status: "completed", removed: 1 });
});

test("the connections to a vault are closed after each scan, also after a failure", async () => {
  await runScan("full");
  expect(fixture.cloud.closedConnections).toBe(1);
  fixture.cloud.certificatesFailure = new CloudFailure("firewall", "Refused.", { remedy: "Allow it." });
  await runScan("full");
  expect(fixture.cloud.closedConnections).toBe(2);
});

test("a name that a list contains twice becomes one asset", async () => {
  fixture.cloud.listedEntries = { secrets: [{ name: "twice" }, { name: "Twice" }] };
  expect(await runScan("full")).toMatchObject({ status: "completed", added: 1 });
});

test("the back-off of a vault without a readable list doubles with each scan", async () => {
  const retryAfterMinutes = async () => {
    const row = await fixture.writer.readForUpdate("kv-one");
    return row.row?.retryAt && Math.round((Date.parse(row.row.retryAt) - fixture.clock.now().getTime()) / 60_000);
  };
  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = throwFailure("firewall");
  for (const minutes of [5, 10, 20, 40, 80, 160, 320, 360, 360]) {
    await fixture.scan("force");
    expect(await retryAfterMinutes()).toBe(minutes);
  }
  fixture.cloud.keyVaults.open = open;
  await fixture.scan("force");
  expect(await retryAfterMinutes()).toBeUndefined();
});

/** Leaves the vault as a worker does that crashed before it wrote the vault's own asset rows, with an expired lease. */
async function leaveHalfWritten(changes: AssetChange[]): Promise<void> {
  const stored = await fixture.writer.readForUpdate("kv-one");
  const crashBeforeVaultRows = async () => async () => {
    throw new Error("crashed before the vault's own rows");
  };
  await expect(
    fixture.writer.apply(stored, withoutKeys(stored.row!), changes, "dead", crashBeforeVaultRows),
  ).rejects.toThrow("crashed");
  const row = (await fixture.writer.find("kv-one"))!;
  await fixture.tables.replace(Vaults, { ...row, lockOwner: undefined });
}

test("a vault in back-off is scanned if a crashed worker left it partly written", async () => {
  await fixture.scan("full");
  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = throwFailure("firewall");
  await fixture.scan("force");
  fixture.cloud.keyVaults.open = open;
  const before = await fixture.assetLines();

  const secrets = [...(await fixture.writer.assetsOf("kv-one", "secret")).values()];
  await leaveHalfWritten(secrets.map((secret) => ({ ...secret, before: secret, after: undefined })));

  await fixture.scan("delta");
  expect(await fixture.assetLines()).toEqual(before);
  expect(await fixture.writer.find("kv-one")).toMatchObject({ pending: false, failedScans: 0 });
});

test("an unreadable vault that a crashed worker left partly written gets its earlier assets back", async () => {
  await fixture.scan("full");
  const before = await fixture.assetLines();
  const [stored] = (await fixture.writer.assetsOf("kv-one", "secret")).values();
  const renewed = { ...stored!, version: "2", content: "renewed" };
  const added = { ...stored!, name: "partly-added" };
  await leaveHalfWritten([
    { type: "secret", name: stored!.name, before: stored, after: renewed },
    { type: "secret", name: added.name, before: undefined, after: added },
  ]);

  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = throwFailure("firewall");
  expect(await runScan("full")).toMatchObject({ status: "failed", ...NO_CHANGES });
  expect(await fixture.assetLines()).toEqual(before);
  expect(await readAsset("secret", stored!.name)).toEqual(stored);
  fixture.cloud.keyVaults.open = open;
  expect(await fixture.scan("force")).toMatchObject({ status: "completed", tally: NO_CHANGES });
});
