import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { assetView } from "../../shared/inventory/api.ts";
import { seventhOf } from "../../shared/inventory/details.ts";
import { type ReadSevenths, VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import type { AssetChange } from "../../shared/inventory/write.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { everything, HERE, type Rooms, scanRooms } from "./rooms.ts";

/** What a scan makes of a vault of which something can't be read. */

const ACCOUNTS = Array.from({ length: 24 }, (_, at) => `account${at}`);

let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
});
afterAll(() => azurite?.stop());

let rooms: Rooms;
beforeEach(() => {
  rooms = scanRooms(azurite.connectionString(ACCOUNTS[used++]!));
  rooms.cloud.vaults.set(HERE, ["kv-one"]);
});

const failing = (code: CloudFailure["code"]) => () => {
  throw new CloudFailure(code, `It is ${code}.`, { remedy: "Mend it." });
};

async function scanned(mode: "full" | "delta") {
  const { scanId, status, tally } = await rooms.scan(mode);
  const { page } = await rooms.discovery.results(scanId, everything);
  const codes = page.items.flatMap(({ failures }) => failures.map(({ list, code }) => `${list}: ${code}`));
  return { status, codes, added: tally.added, updated: tally.updated, removed: tally.removed };
}
const NOTHING_NEW = { added: 0, updated: 0, removed: 0 };

/** As the API shows it. */
async function shown(id: string) {
  const moment = { now: Date.parse("2026-11-21T10:00:00Z"), criticalDays: 7, warningDays: 30 };
  return assetView((await rooms.assets.get(id, moment))!, moment, "owner");
}

async function asset(type: "secret" | "key" | "certificate", name: string) {
  const found = await rooms.assets.get(`kv-one.${type}.${name}`, { now: 0 });
  return found && withoutKeys(found.asset);
}

describe("a rotation policy that can't be read costs only itself", () => {
  beforeEach(() => {
    rooms.cloud.listed = { keys: [{ name: "signing" }, { name: "wrapping" }] };
  });

  test("the key's type, size and version are there, the refusal is told once, and no key is blamed for it", async () => {
    rooms.cloud.policy = failing("accessDenied");
    expect(await scanned("full")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    const key = await asset("key", "signing");
    expect(key).toMatchObject({ keyType: "RSA", keySize: 3072, version: "1" });
    expect(key).not.toHaveProperty("rotationPolicy", expect.anything());
    // What the compliance check goes by: not read, rather than none.
    expect(key?.listing).toBe("");
  });

  test("scans of any mode try again, and it is there once it can be read", async () => {
    rooms.cloud.policy = failing("accessDenied");
    await scanned("full");
    expect(await scanned("delta")).toMatchObject({ status: "partial", codes: ["rotationPolicies: accessDenied"] });
    rooms.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    expect(await scanned("delta")).toMatchObject({ status: "completed", updated: 2 });
    expect(await asset("key", "wrapping")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
    expect(await scanned("delta")).toMatchObject({ status: "completed", ...NOTHING_NEW });
  });

  test("one that was read before stays", async () => {
    rooms.cloud.policy = () => ({ lifetimeActions: [{ action: "Rotate" }] });
    await scanned("full");
    rooms.cloud.policy = failing("unreachable");
    expect(await scanned("full")).toMatchObject({ codes: ["rotationPolicies: unreachable"], ...NOTHING_NEW });
    expect(await asset("key", "signing")).toMatchObject({
      rotationPolicy: { lifetimeActions: [{ action: "Rotate" }] },
    });
  });
});

describe("a passing failure of a certificate's details", () => {
  test("changes nothing of an unchanged one, and counts as no change when it is over", async () => {
    await scanned("full");
    const before = await asset("certificate", "www");
    rooms.cloud.certificate = failing("unreachable");
    expect(await scanned("full")).toEqual({ status: "partial", codes: ["certificates: unreachable"], ...NOTHING_NEW });
    expect(await asset("certificate", "www")).toMatchObject({ ...before, listing: "" });
    let asked = 0;
    rooms.cloud.certificate = () => {
      asked++;
      return { version: "1", subject: "CN=www" };
    };
    expect(await scanned("delta")).toEqual({ status: "completed", codes: [], ...NOTHING_NEW });
    expect(asked).toBe(1);
    expect(await asset("certificate", "www")).toEqual(before);
  });

  test("leaves a renewed one as it was until it can be read: one change, counted once", async () => {
    await scanned("full");
    rooms.cloud.listed.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    rooms.cloud.certificate = failing("throttled");
    const { expiresOn } = await shown("kv-one.certificate.www");
    expect(await scanned("delta")).toEqual({ status: "partial", codes: ["certificates: throttled"], ...NOTHING_NEW });
    // It says that it is old, until it is not.
    expect(await shown("kv-one.certificate.www")).toMatchObject({ stale: true, expiresOn });
    rooms.cloud.certificate = () => ({ version: "2", subject: "CN=www" });
    expect(await scanned("delta")).toMatchObject({ status: "completed", updated: 1 });
    expect(await asset("certificate", "www")).toMatchObject({ version: "2", expiresOn: 2_000_000_000 });
    expect((await shown("kv-one.certificate.www")).stale).toBe(false);
    expect(await scanned("full")).toMatchObject({ status: "completed", ...NOTHING_NEW });
  });

  test("where it is refused, which may last, the list's own facts are shown all the same", async () => {
    await scanned("full");
    rooms.cloud.listed.certificates = [{ name: "www", expiresOn: 2_000_000_000 }];
    rooms.cloud.certificate = failing("accessDenied");
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
    rooms.cloud.listed = { certificates: NAMES.map((name) => ({ name })) };
    rooms.cloud.certificate = (name) => {
      asked.push(name);
      return { version: "1", subject: "CN=www", autoRenew: true };
    };
  });

  /** Answers what details were read of. */
  async function scheduled(): Promise<string[]> {
    asked = [];
    await rooms.discovery.startScheduled("full", "request-3");
    await rooms.deliver();
    return asked.sort();
  }
  async function full(): Promise<string[]> {
    asked = [];
    await rooms.scan("full");
    return asked.sort();
  }
  /** As if the details of one seventh had been read so long ago, or none at all ever. */
  const age = (change: (read: ReadSevenths) => ReadSevenths | undefined) =>
    rooms.tables.modify(Vaults, VAULTS, vaultKey("kv-one"), (row) => ({
      ...row!,
      details: { ...row!.details, certificate: change(row!.details!.certificate!) },
    }));
  const older = (days: number) =>
    age((read) => read.map(([at, hash], seventh) => [seventh === due ? at - days * DAY_SECONDS : at, hash]));

  test("reads the details that are due, one that is asked for reads all", async () => {
    expect(await full()).toEqual([...NAMES].sort());
    expect(await scheduled()).toEqual([]);
    await older(8);
    expect(await scheduled()).toEqual(inSeventh(due).sort());
    expect(await scheduled()).toEqual([]);
    expect(await full()).toEqual([...NAMES].sort());
    // A store of the version before does not say when they were read.
    await age(() => undefined);
    expect((await shown("kv-one.certificate.www-0")).detailsReadAt).toBeNull();
    expect(await scheduled()).toEqual([...NAMES].sort());
    expect(await scheduled()).toEqual([]);
  });

  test("says when each was read, writes no asset for it, and sees what changed without a sign", async () => {
    await full();
    await older(8);
    const first = await shown("kv-one.certificate.www-0");
    const transactions = vi.spyOn(rooms.writer, "apply");
    const rows = vi.spyOn(rooms.writer, "assetsOf");
    await scheduled();
    expect([transactions.mock.calls.length, rows.mock.calls.length]).toEqual([0, 0]);
    const read = await shown("kv-one.certificate.www-0");
    expect(first.detailsReadAt).toBe(first.firstSeenAt);
    expect(Date.parse(read.detailsReadAt!)).toBeGreaterThanOrEqual(Date.parse(first.detailsReadAt!) - 1000);

    rooms.cloud.certificate = (name) => {
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

  test("tries again what could not be read, until it could", async () => {
    await full();
    await older(8);
    const { certificate } = rooms.cloud;
    rooms.cloud.certificate = (name) => {
      asked.push(name);
      return name === NAMES[0] ? failing("unreachable")() : certificate(name);
    };
    await scheduled();
    expect(await shown("kv-one.certificate.www-0")).toMatchObject({ stale: true, detailsReadAt: null });
    rooms.cloud.certificate = certificate;
    expect(await scheduled()).toEqual([NAMES[0]]);
    expect((await shown("kv-one.certificate.www-0")).stale).toBe(false);
    expect(await scheduled()).toEqual([]);
  });
});

test("a list that can't be parsed leaves its assets unchanged, and the vault is partial", async () => {
  rooms.cloud.listed.certificates = [{ name: "api" }, { name: "www" }];
  await scanned("full");
  rooms.cloud.listed = { secrets: [{ name: "another" }], certificates: [{ name: "api" }] };
  rooms.cloud.certificatesFailure = new CloudFailure("badResponse", "An entry is odd.", { remedy: "Look at it." });
  expect(await scanned("full")).toEqual({
    status: "partial",
    codes: ["certificates: badResponse"],
    added: 1,
    updated: 0,
    removed: 1,
  });
  expect(await asset("certificate", "www")).toMatchObject({ subject: "CN=www" });
  expect(await asset("secret", "another")).toBeDefined();
  rooms.cloud.certificatesFailure = undefined;
  expect(await scanned("delta")).toMatchObject({ status: "completed", removed: 1 });
});

test("the connections of a vault are closed when the vault was read, and when it could not be read", async () => {
  await scanned("full");
  expect(rooms.cloud.closed).toBe(1);
  rooms.cloud.certificatesFailure = new CloudFailure("firewall", "Refused.", { remedy: "Allow it." });
  await scanned("full");
  expect(rooms.cloud.closed).toBe(2);
});

test("a name that a list gives twice is one asset", async () => {
  rooms.cloud.listed = { secrets: [{ name: "twice" }, { name: "Twice" }] };
  expect(await scanned("full")).toMatchObject({ status: "completed", added: 1 });
});

test("a vault all of whose lists fail is left alone twice as long each time, and no longer once it can be read", async () => {
  const retryAfterMinutes = async () => {
    const row = await rooms.writer.known("kv-one");
    return row.row?.retryAt && Math.round((Date.parse(row.row.retryAt) - rooms.clock.now().getTime()) / 60_000);
  };
  const open = rooms.cloud.keyVaults.open;
  rooms.cloud.keyVaults.open = failing("firewall");
  for (const minutes of [5, 10, 20, 40, 80, 160, 320, 360, 360]) {
    await rooms.scan("force");
    expect(await retryAfterMinutes()).toBe(minutes);
  }
  rooms.cloud.keyVaults.open = open;
  await rooms.scan("force");
  expect(await retryAfterMinutes()).toBeUndefined();
});

/** Leaves the vault as a worker does that dies, its lease over, before it wrote the vault's own rows. */
async function leaveHalfWritten(changes: AssetChange[]): Promise<void> {
  const known = await rooms.writer.known("kv-one");
  const dies = async () => async () => {
    throw new Error("died before the vault's own rows");
  };
  await expect(rooms.writer.apply(known, withoutKeys(known.row!), changes, "dead", dies)).rejects.toThrow("died");
  const row = (await rooms.writer.find("kv-one"))!;
  await rooms.tables.replace(Vaults, { ...row, lockOwner: undefined });
}

test("a vault that is left alone for a while is scanned all the same where a dead worker left it half written", async () => {
  await rooms.scan("full");
  const open = rooms.cloud.keyVaults.open;
  rooms.cloud.keyVaults.open = failing("firewall");
  await rooms.scan("force");
  rooms.cloud.keyVaults.open = open;
  const before = await rooms.ids();

  const secrets = [...(await rooms.writer.assetsOf("kv-one", "secret")).values()];
  await leaveHalfWritten(secrets.map((asset) => ({ ...asset, before: asset, after: undefined })));

  await rooms.scan("delta");
  expect(await rooms.ids()).toEqual(before);
  expect(await rooms.writer.find("kv-one")).toMatchObject({ pending: false, failedScans: 0 });
});

test("a list that can't be read takes nothing out that a dead worker left half written, and shows nothing it half added", async () => {
  await rooms.scan("full");
  const before = await rooms.ids();
  const [known] = (await rooms.writer.assetsOf("kv-one", "secret")).values();
  const renewed = { ...known!, version: "2", content: "renewed" };
  const added = { ...known!, name: "half-added" };
  await leaveHalfWritten([
    { type: "secret", name: known!.name, before: known, after: renewed },
    { type: "secret", name: added.name, before: undefined, after: added },
  ]);

  const open = rooms.cloud.keyVaults.open;
  rooms.cloud.keyVaults.open = failing("firewall");
  expect(await scanned("full")).toMatchObject({ status: "failed", ...NOTHING_NEW });
  expect(await rooms.ids()).toEqual(before);
  expect(await asset("secret", known!.name)).toEqual(known);
  rooms.cloud.keyVaults.open = open;
  expect(await rooms.scan("force")).toMatchObject({ status: "completed", tally: NOTHING_NEW });
});
