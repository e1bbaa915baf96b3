import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { assetView } from "../../shared/inventory/api.ts";
import { seventhOf } from "../../shared/inventory/details.ts";
import { type ReadSevenths, VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import type { AssetChange } from "../../shared/inventory/write.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { createScanFixture, everything, HERE, type ScanFixture } from "./scan-fixture.ts";

/** Scans of a vault that can be read only in part. */

const ACCOUNTS = Array.from({ length: 24 }, (_, at) => `account${at}`);

let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
});
afterAll(() => azurite?.stop());

let fixture: ScanFixture;
beforeEach(() => {
  fixture = createScanFixture(azurite.connectionString(ACCOUNTS[used++]!));
  fixture.cloud.vaults.set(HERE, ["kv-one"]);
});

const failing = (code: CloudFailure["code"]) => () => {
  throw new CloudFailure(code, `It is ${code}.`, { remedy: "Mend it." });
};

async function scanned(mode: "full" | "delta") {
  const { scanId, status, tally } = await fixture.scan(mode);
  const { page } = await fixture.discovery.results(scanId, everything);
  const codes = page.items.flatMap(({ failures }) => failures.map(({ list, code }) => `${list}: ${code}`));
  return { status, codes, added: tally.added, updated: tally.updated, removed: tally.removed };
}
const NOTHING_NEW = { added: 0, updated: 0, removed: 0 };

/** The asset as the API returns it. */
async function shown(id: string) {
  const moment = { now: Date.parse("2026-11-21T10:00:00Z"), criticalDays: 7, warningDays: 30 };
  return assetView((await fixture.assets.get(id, moment))!, moment, "owner");
}

async function asset(type: "secret" | "key" | "certificate", name: string) {
  const found = await fixture.assets.get(`kv-one.${type}.${name}`, { now: 0 });
  return found && withoutKeys(found.asset);
}

describe("a rotation policy that can't be read affects only itself", () => {
  beforeEach(() => {
    fixture.cloud.listed = { keys: [{ name: "signing" }, { name: "wrapping" }] };
  });

  test("the key's type, size and version are stored, the failure is recorded once, and no key fails a check for it", async () => {
    fixture.cloud.policy = failing("accessDenied");
    expect(await scanned("full")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    const key = await asset("key", "signing");
    expect(key).toMatchObject({ keyType: "RSA", keySize: 3072, version: "1" });
    expect(key).not.toHaveProperty("rotationPolicy", expect.anything());
    // The compliance check sees: not read, rather than none.
    expect(key?.listing).toBe("");
  });

  test("scans of any mode retry, and the policy is stored once it can be read", async () => {
    fixture.cloud.policy = failing("accessDenied");
    await scanned("full");
    expect(await scanned("delta")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    fixture.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    expect(await scanned("delta")).toMatchObject({ status: "completed", updated: 2 });
    expect(await asset("key", "wrapping")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
    expect(await scanned("delta")).toMatchObject({ status: "completed", ...NOTHING_NEW });
  });

  test("a policy that was read before stays", async () => {
    fixture.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    await scanned("full");
    fixture.cloud.policy = failing("unreachable");
    expect(await scanned("full")).toMatchObject({ codes: ["rotationPolicies: unreachable"], ...NOTHING_NEW });
    expect(await asset("key", "signing")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
  });
});

describe("a temporary failure to read a certificate's details", () => {
  test("changes nothing of an unchanged certificate, and its recovery counts as no change", async () => {
    await scanned("full");
    const before = await asset("certificate", "www");
    fixture.cloud.certificate = failing("unreachable");
    expect(await scanned("full")).toEqual({ status: "partial", codes: ["certificates: unreachable"], ...NOTHING_NEW });
    expect(await asset("certificate", "www")).toMatchObject({ ...before, listing: "" });
    let asked = 0;
    fixture.cloud.certificate = () => {
      asked++;
      return { version: "1", subject: "CN=www" };
    };
    expect(await scanned("delta")).toEqual({ status: "completed", codes: [], ...NOTHING_NEW });
    expect(asked).toBe(1);
    expect(await asset("certificate", "www")).toEqual(before);
  });

  test("keeps the old details of a renewed certificate until the new ones can be read: one change, counted once", async () => {
    await scanned("full");
    fixture.cloud.listed.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    fixture.cloud.certificate = failing("throttled");
    const { expiresOn } = await shown("kv-one.certificate.www");
    expect(await scanned("delta")).toEqual({ status: "partial", codes: ["certificates: throttled"], ...NOTHING_NEW });
    // The asset is marked as outdated until then.
    expect(await shown("kv-one.certificate.www")).toMatchObject({ stale: true, expiresOn });
    fixture.cloud.certificate = () => ({ version: "2", subject: "CN=www" });
    expect(await scanned("delta")).toMatchObject({ status: "completed", updated: 1 });
    expect(await asset("certificate", "www")).toMatchObject({ version: "2", expiresOn: 2_000_000_000 });
    expect((await shown("kv-one.certificate.www")).stale).toBe(false);
    expect(await scanned("full")).toMatchObject({ status: "completed", ...NOTHING_NEW });
  });

  test("if access is denied, which may last, the fields of the list are shown nevertheless", async () => {
    await scanned("full");
    fixture.cloud.listed.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    fixture.cloud.certificate = failing("accessDenied");
    expect(await scanned("delta")).toMatchObject({ codes: ["certificates: accessDenied"], updated: 1 });
    expect(await asset("certificate", "www")).toMatchObject({ version: "1", expiresOn: 2_000_000_000 });
  });
});

describe("a scheduled full scan", () => {
  const NAMES = Array.from({ length: 21 }, (_, at) => `www-${at}`);
  const inSeventh = (seventh: number) => NAMES.filter((name) => seventhOf("kv-one", name) === seventh);
  const due = seventhOf("kv-one", NAMES[0]!);
  let asked: string[] = [];
  beforeEach(() => {
    fixture.cloud.listed = { certificates: NAMES.map((name) => ({ name })) };
    fixture.cloud.certificate = (name) => {
      asked.push(name);
      return { version: "1", subject: "CN=www", autoRenew: true };
    };
  });

  /** Returns the names of assets whose details were read. */
  async function scheduled(): Promise<string[]> {
    asked = [];
    await fixture.discovery.startScheduled("full", "request-3");
    await fixture.deliver();
    return asked.sort();
  }
  async function full(): Promise<string[]> {
    asked = [];
    await fixture.scan("full");
    return asked.sort();
  }
  /** Sets the last reading of one seventh's details back, or removes all of them. */
  const age = (change: (read: ReadSevenths) => ReadSevenths | undefined) =>
    fixture.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => ({
      ...row!,
      details: { ...row!.details, certificate: change(row!.details!.certificate!) },
    }));
  const older = (days: number) =>
    age((read) => read.map(([at, hash], seventh) => [seventh === due ? at - days * DAY_SECONDS : at, hash]));

  test("reads the details that are due, and a requested full scan reads all", async () => {
    expect(await full()).toEqual([...NAMES].sort());
    expect(await scheduled()).toEqual([]);
    await older(8);
    expect(await scheduled()).toEqual(inSeventh(due).sort());
    expect(await scheduled()).toEqual([]);
    expect(await full()).toEqual([...NAMES].sort());
    // Rows of the previous version do not have the times of reading.
    await age(() => undefined);
    expect((await shown("kv-one.certificate.www-0")).detailsReadAt).toBeNull();
    expect(await scheduled()).toEqual([...NAMES].sort());
    expect(await scheduled()).toEqual([]);
  });

  test("stores when each was read without writing assets, and finds changes that no list shows", async () => {
    await full();
    await older(8);
    const first = await shown("kv-one.certificate.www-0");
    const transactions = vi.spyOn(fixture.writer, "apply");
    const rows = vi.spyOn(fixture.writer, "assetsOf");
    await scheduled();
    expect([transactions.mock.calls.length, rows.mock.calls.length]).toEqual([0, 0]);
    const read = await shown("kv-one.certificate.www-0");
    expect(first.detailsReadAt).toBe(first.firstSeenAt);
    expect(Date.parse(read.detailsReadAt!)).toBeGreaterThanOrEqual(Date.parse(first.detailsReadAt!) - 1000);

    fixture.cloud.certificate = (name) => {
      asked.push(name);
      return { version: "1", subject: "CN=www", autoRenew: false };
    };
    await scheduled();
    expect((await shown("kv-one.certificate.www-0")).autoRenew).toBe(true);
    await older(8);
    expect(await scheduled()).toEqual(inSeventh(due).sort());
    for (const name of NAMES) {
      expect((await shown(`kv-one.certificate.${name}`)).autoRenew).toBe(!inSeventh(due).includes(name));
    }
    expect(await scheduled()).toEqual([]);
  });

  test("retries details that could not be read until it succeeds", async () => {
    await full();
    await older(8);
    const { certificate } = fixture.cloud;
    fixture.cloud.certificate = (name) => {
      asked.push(name);
      return name === NAMES[0] ? failing("unreachable")() : certificate(name);
    };
    await scheduled();
    expect(await shown("kv-one.certificate.www-0")).toMatchObject({ stale: true, detailsReadAt: null });
    fixture.cloud.certificate = certificate;
    expect(await scheduled()).toEqual([NAMES[0]]);
    expect((await shown("kv-one.certificate.www-0")).stale).toBe(false);
    expect(await scheduled()).toEqual([]);
  });
});

test("a list that can't be parsed leaves its assets unchanged, and the vault is partial", async () => {
  fixture.cloud.listed.certificates = [{ name: "api" }, { name: "www" }];
  await scanned("full");
  fixture.cloud.listed = { secrets: [{ name: "another" }], certificates: [{ name: "api" }] };
  fixture.cloud.certificatesFailure = new CloudFailure("badResponse", "An entry is odd.", { remedy: "Look at it." });
  expect(await scanned("full")).toEqual({
    status: "partial",
    codes: ["certificates: badResponse"],
    added: 1,
    updated: 0,
    removed: 1,
  });
  expect(await asset("certificate", "www")).toMatchObject({ subject: "CN=www" });
  expect(await asset("secret", "another")).toBeDefined();
  fixture.cloud.certificatesFailure = undefined;
  expect(await scanned("delta")).toMatchObject({ status: "completed", removed: 1 });
});

test("the connections of a vault are closed when the vault was read, and when it could not be read", async () => {
  await scanned("full");
  expect(fixture.cloud.closed).toBe(1);
  fixture.cloud.certificatesFailure = new CloudFailure("firewall", "Refused.", { remedy: "Allow it." });
  await scanned("full");
  expect(fixture.cloud.closed).toBe(2);
});

test("a name that a list contains twice is one asset", async () => {
  fixture.cloud.listed = { secrets: [{ name: "twice" }, { name: "Twice" }] };
  expect(await scanned("full")).toMatchObject({ status: "completed", added: 1 });
});

test("the back-off of a vault all of whose lists fail doubles each time, and ends once the vault can be read", async () => {
  const retryAfterMinutes = async () => {
    const row = await fixture.writer.readForUpdate("kv-one");
    return row.row?.retryAt && Math.round((Date.parse(row.row.retryAt) - fixture.clock.now().getTime()) / 60_000);
  };
  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = failing("firewall");
  for (const minutes of [5, 10, 20, 40, 80, 160, 320, 360, 360]) {
    await fixture.scan("force");
    expect(await retryAfterMinutes()).toBe(minutes);
  }
  fixture.cloud.keyVaults.open = open;
  await fixture.scan("force");
  expect(await retryAfterMinutes()).toBeUndefined();
});

/** Leaves the vault as a crashed worker does: its lease expired, before it wrote the vault's own rows. */
async function leaveHalfWritten(changes: AssetChange[]): Promise<void> {
  const known = await fixture.writer.readForUpdate("kv-one");
  const dies = async () => async () => {
    throw new Error("crashed before the vault's own rows");
  };
  await expect(fixture.writer.apply(known, withoutKeys(known.row!), changes, "dead", dies)).rejects.toThrow("crashed");
  const row = (await fixture.writer.find("kv-one"))!;
  await fixture.tables.replace(Vaults, { ...row, lockOwner: undefined });
}

test("a vault in back-off is scanned if a crashed worker left it half written", async () => {
  await fixture.scan("full");
  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = failing("firewall");
  await fixture.scan("force");
  fixture.cloud.keyVaults.open = open;
  const before = await fixture.ids();

  const secrets = [...(await fixture.writer.assetsOf("kv-one", "secret")).values()];
  await leaveHalfWritten(secrets.map((asset) => ({ ...asset, before: asset, after: undefined })));

  await fixture.scan("delta");
  expect(await fixture.ids()).toEqual(before);
  expect(await fixture.writer.find("kv-one")).toMatchObject({ pending: false, failedScans: 0 });
});

test("a list that can't be read removes nothing that a crashed worker left half written, and shows nothing it half added", async () => {
  await fixture.scan("full");
  const before = await fixture.ids();
  const [known] = (await fixture.writer.assetsOf("kv-one", "secret")).values();
  const renewed = { ...known!, version: "2", content: "renewed" };
  const added = { ...known!, name: "half-added" };
  await leaveHalfWritten([
    { type: "secret", name: known!.name, before: known, after: renewed },
    { type: "secret", name: added.name, before: undefined, after: added },
  ]);

  const open = fixture.cloud.keyVaults.open;
  fixture.cloud.keyVaults.open = failing("firewall");
  expect(await scanned("full")).toMatchObject({ status: "failed", ...NOTHING_NEW });
  expect(await fixture.ids()).toEqual(before);
  expect(await asset("secret", known!.name)).toEqual(known);
  fixture.cloud.keyVaults.open = open;
  expect(await fixture.scan("force")).toMatchObject({ status: "completed", tally: NOTHING_NEW });
});
