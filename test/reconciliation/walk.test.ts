import { randomUUID } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ASSET_CHECKS } from "../../shared/compliance/checks/all.ts";
import { STATE, TOTALS_KEY } from "../../shared/compliance/compliance-rows.ts";
import { Assets } from "../../shared/inventory/asset.ts";
import { nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { TOTALS_KEY as INVENTORY_TOTALS_KEY } from "../../shared/inventory/totals.ts";
import { VAULTS as VAULTS_PARTITION, Vaults, vaultInSubscriptionKey } from "../../shared/inventory/vault.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { OTHER_ROWS } from "../../shared/reconciliation/stored-rows.ts";
import { WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { Service } from "../support/service.ts";
import { rowKeysOf } from "../support/users.ts";
import { companyOf, differences, openReconciliation, SUBSCRIPTIONS, snapshot } from "./reconciliation-fixture.ts";

/**
 * Tests of the reconciliation in a running service. It is a timer job that compares stored rows with one another and repairs
 * differences. One pass over all rows is a walk; a walk can take several runs of the timer.
 */

const VAULTS = Array.from({ length: 8 }, (_, index) => `kv-walked-${index}`);

let service: Service;
let keys: RowKeys;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true, company: companyOf(VAULTS) });
  expect((await service.scan({ mode: "full" })).status).toBe("completed");
  keys = await rowKeysOf(service);
}, 600_000);
afterAll(() => service?.stop());

/** Creates the reconciliation in this process, on the storage of the service. */
const openWalk = (limits?: Parameters<typeof openReconciliation>[1], stepMs?: number) =>
  openReconciliation(service.azurite.connectionString(), limits, stepMs, keys);

describe("while a vault is written", () => {
  test("a walk skips the vault and names it in its record", async () => {
    const fixture = openWalk();
    const vault = VAULTS[0]!;
    const { writer } = fixture;
    const row = await fixture.tables.get(Assets, partitions.vault(vault), nameKey("secret", "password", vault));
    const asset = withoutKeys(row!);
    const stored = await writer.readForUpdate(vault);
    const changedAsset = { ...asset, enabled: false, expiresOn: asset.expiresOn! + 1, content: "changed" };
    // The writer has written the copies of the asset's row and waits before it writes the asset's own row.
    const copiesWritten = Promise.withResolvers<void>();
    const walkFinished = Promise.withResolvers<void>();
    // Without fingerprints of the vault's lists, so that the scan at the end reads the lists and restores the asset.
    const record = { ...withoutKeys(stored.row!), listings: {}, contents: {} };
    const writing = writer.apply(
      stored,
      record,
      [{ type: "secret", name: asset.name, before: asset, after: changedAsset }],
      "worker",
      async () => async () => {
        copiesWritten.resolve();
        await walkFinished.promise;
      },
    );
    await copiesWritten.promise;
    const rowsBefore = await snapshot(fixture);
    await fixture.walk();
    const { newest } = await fixture.reconciliation.status();
    expect(differences(rowsBefore, await snapshot(fixture))).toEqual([]);
    // The numbers of repairs, by kind of fault.
    expect(Object.values(newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(newest!.left).toContainEqual({ vault, reason: "it was being written" });
    walkFinished.resolve();
    await writing;
    expect((await service.scan({ mode: "force" })).status).toBe("completed");
    expect(fixture.events).toEqual([]);
  }, 600_000);

  test("a walk during scans repairs nothing, and a walk after them finds no fault", async () => {
    const fixture = openWalk({ runMs: 0, rowsPerStep: 50, pauseMs: 5 });
    let walks = 0;
    let scanning = true;
    const walking = (async () => {
      while (scanning || walks === 0) {
        await fixture.walk();
        walks++;
      }
    })();
    /** Numbers of added and updated assets of each scan. */
    const scanResults: string[] = [];
    for (let round = 0; round < 2; round++) {
      for (const vault of VAULTS) {
        const path = `${service.cloud.controlUrl}/vaults/${vault}/secrets`;
        const body = JSON.stringify({ name: round % 2 ? "password" : `added-${round}`, expiresInDays: 50 + round });
        const answer = await fetch(path, { method: "POST", body, headers: { "content-type": "application/json" } });
        expect(answer.ok, await answer.text()).toBe(true);
      }
      const { status, progress } = await service.scan({ mode: round % 2 ? "force" : "delta" });
      expect(status).toBe("completed");
      scanResults.push(`${progress.assetsAdded}/${progress.assetsUpdated}`);
    }
    scanning = false;
    await walking;
    expect(scanResults).toEqual(["8/0", "0/8"]);
    expect(walks).toBeGreaterThanOrEqual(1);
    expect(fixture.events).toEqual([]);
    const rowsBefore = await snapshot(fixture);
    await fixture.walk();
    expect(fixture.events).toEqual([]);
    expect((await fixture.reconciliation.status()).newest!.leftTotal).toBe(0);
    expect(differences(rowsBefore, await snapshot(fixture))).toEqual([]);
  }, 600_000);
});

test("a fault is repaired within a week even if a walk takes days and has already passed the row", async () => {
  const { RECONCILIATION_SCHEDULE } = loadConfig({ ...service.environment, RECONCILIATION_SCHEDULE: "" });
  expect(RECONCILIATION_SCHEDULE).toMatch(/^0 \d+ \* \* \* \*$/);
  // The timer runs hourly. One row per step, and a minute each time the clock is read: few steps an hour, some days per walk.
  const fixture = openWalk({ rowsPerStep: 1, pauseMs: 1 }, MINUTE_MS);
  const previousWalkId = (await fixture.reconciliation.status()).newest?.walkId;
  const runHourly = async () => {
    await fixture.reconciliation.run("request");
    fixture.addTime(HOUR_MS);
  };
  const newestWalk = async () => (await fixture.reconciliation.status()).newest!;
  const hasPassedVaults = async () =>
    (await newestWalk()).walkId !== previousWalkId && (await newestWalk()).stage !== "vaults";
  do await runHourly();
  while (!(await hasPassedVaults()));
  const vault = VAULTS[0]!;
  const copyKey = vaultInSubscriptionKey(SUBSCRIPTIONS[0], vault);
  const readCopy = () => fixture.tables.get(Vaults, VAULTS_PARTITION, copyKey);
  await fixture.tables.remove(Vaults, VAULTS_PARTITION, copyKey);
  const { walkId } = await newestWalk();
  let hours = 0;
  for (; !(await readCopy()) && hours <= 7 * 24; hours++) await runHourly();
  expect((await newestWalk()).walkId).not.toBe(walkId);
  expect(hours).toBeLessThanOrEqual(7 * 24);
  const { startedAt, finishedAt } = (await fixture.reconciliation.status()).completed!;
  expect(Date.parse(finishedAt!) - Date.parse(startedAt)).toBeGreaterThan(DAY_MS);
}, 600_000);

describe("the cost of a walk", () => {
  test("is four table requests per vault and a fixed number for all vaults together", async () => {
    const fixture = openReconciliation(service.tables.connectionString, undefined, 0, keys);
    // Completes the walk in progress, so that the next one starts at the beginning.
    await fixture.walk();
    service.clearTableRequests();
    expect(await fixture.walk()).toBe(1);
    // The walk runs in this process. Requests of the host's functions are not counted.
    const requests = service.tableRequests().filter(({ by }) => by === undefined);
    const walkRequests = requests.filter(({ path }) => !/Audit(?!Streams)/.test(path));
    // Per vault: its partition, its copy, the name of its partition, and its partition again to compare its subscription's.
    const perVault = 4 * VAULTS.length;
    // Compliance results are read twice: those of the vaults of the only step, and those of vault names after the last vault.
    // Each time needs one request per check and two more.
    const results = 2 * (ASSET_CHECKS.length + 2);
    // Three requests for each subscription's partition, and a fixed number for the stages of a walk, measured.
    const partitionsAndStages = 3 * SUBSCRIPTIONS.length + 33;
    // Reads all vaults twice, the changed ones, and the totals before and after and their renewal. The same for the results.
    const totals = 24;
    // Requests of the last stage: its vaults, the position after each of seven checks, and 19 ranges and rows, of which most
    // are empty. Also one request for each of the other kinds of rows, and some for the partitions of kinds that have several.
    const records = 1 + 7 + 19 + OTHER_ROWS.length + 20;
    expect(walkRequests.length).toBeLessThanOrEqual(perVault + results + partitionsAndStages + totals + records);
    expect(walkRequests.length).toBeGreaterThan(perVault + results);
    // The index of the audit log: the names of the days, its pages, and the entries of today and tomorrow.
    expect(requests.length - walkRequests.length).toBeLessThanOrEqual(6);
    // Fences (rows `f!` that protect a vault from late writes) of removed vaults are searched in all partitions except those of
    // existing vaults.
    const fenceRequests = walkRequests.flatMap(
      ({ path, filter }) =>
        (path.includes("Assets") && /^PartitionKey eq '(.+)' and RowKey ge 'f!'/.exec(filter ?? "")?.[1]) || [],
    );
    expect(fenceRequests).toEqual([partitions.all, ...SUBSCRIPTIONS.map((id) => partitions.subscription(id))]);
    // A request over the whole table reads only one row, to find the name of the next partition.
    for (const { filter, top } of requests.filter(({ method, path }) => method === "GET" && path.endsWith("()"))) {
      if (!filter?.startsWith("PartitionKey eq '"))
        expect([filter ?? "PartitionKey gt ''", top]).toEqual([expect.stringMatching(/^PartitionKey gt '[^']*'$/), 1]);
    }
  }, 600_000);
});

describe("totals", () => {
  /** Each module's row of totals, with the columns of its compressed counts. */
  const TOTALS = [
    {
      table: Vaults.table,
      partitionKey: VAULTS_PARTITION,
      rowKey: INVENTORY_TOTALS_KEY,
      columns: ["expiries", "summary", "seenAt"],
    },
    { table: "Compliance", partitionKey: STATE, rowKey: TOTALS_KEY, columns: ["totals"] },
  ];

  /** Responses computed from totals. */
  async function readState() {
    const assets = "/api/assets/discovery/assets?limit=3";
    const paths = ["/api/assets/summary", assets, `${assets}&expiresBefore=2028-01-01`, "/compliance/score"];
    const answers = await Promise.all(paths.map((path) => service.admin("GET", path)));
    expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 200));
    const [summary, list, expiring, score] = answers.map(({ body }) => body);
    return {
      assets: summary.byType,
      lists: [list, expiring].map(({ total, items }) => ({ total, items })),
      score: score.score,
    };
  }

  test("that are outdated or corrupt are recomputed, and that is recorded in the audit log", async () => {
    const fixture = openWalk();
    const outdated = await Promise.all(
      TOTALS.map(async ({ table, partitionKey, rowKey, columns }) => {
        const row: Record<string, unknown> = await fixture.raw(table).getEntity(partitionKey, rowKey);
        return columns.map((column) => row[column] as Uint8Array);
      }),
    );
    const body = JSON.stringify({ name: `expired-${randomUUID()}`, expiresInDays: -1 });
    const headers = { "content-type": "application/json" };
    await fetch(`${service.cloud.controlUrl}/vaults/${VAULTS[2]}/secrets`, { method: "POST", body, headers });
    expect((await service.scan({ mode: "delta" })).status).toBe("completed");
    const correct = await readState();

    /** How each fault changes the bytes of a column. `stale` keeps the totals from before the scan. */
    const plantedFaults: [fault: "stale" | "unreadable", bytes: (old: Uint8Array) => Uint8Array][] = [
      ["stale", (old) => old],
      ["unreadable", () => Buffer.from("garbage")],
      ["unreadable", () => deflateRawSync(Buffer.alloc(8, 0xff))],
      ["unreadable", () => new Uint8Array()],
    ];
    for (const [fault, bytes] of plantedFaults) {
      for (const [row, { table, partitionKey, rowKey, columns }] of TOTALS.entries()) {
        const values = Object.fromEntries(columns.map((name, column) => [name, bytes(outdated[row]![column]!)]));
        await fixture.raw(table).updateEntity({ partitionKey, rowKey, ...values }, "Merge");
      }
      const withFault = await readState();
      if (fault === "stale") expect(withFault.score).not.toBe(correct.score);
      else expect(withFault).toEqual(correct);
      fixture.events.splice(0);
      await fixture.walk();
      expect((await fixture.reconciliation.status()).newest!.mended).toMatchObject({ [fault]: 2 });
      const recorded = fixture.events.map(({ type, outcome, details }) => `${type} ${outcome} ${details!.totals}`);
      expect(recorded).toEqual(
        ["inventory.mended", "compliance.mended"].flatMap((type) => [
          `${type} intent ${fault}`,
          `${type} success ${fault}`,
        ]),
      );
      expect(await readState()).toEqual(correct);
    }
  }, 600_000);
});

describe("in the service", () => {
  test("the timer starts a walk, and the API returns when it finished and what it repaired", async () => {
    const fixture = openWalk();
    expect((await service.admin("GET", "/system/reconciliation")).status).toBe(200);
    const asset = await fixture.tables.get(Assets, partitions.all, nameKey("key", "signing", VAULTS[1]!));
    await fixture.tables.remove(Assets, asset!.partitionKey, asset!.rowKey);
    // Without the records of earlier walks, the next walk is due.
    for (const row of ["newest", "before"]) await fixture.tables.remove(Walks, WALKS, row);
    expect((await service.admin("GET", "/system/reconciliation")).body).toEqual({
      newest: null,
      completed: null,
      unreadable: false,
    });
    const started = await fetch(`${service.url}/admin/functions/startReconciliation`, { method: "POST" });
    expect(started.status).toBe(202);
    const completed = async () => (await service.admin("GET", "/system/reconciliation")).body.completed;
    await expect.poll(completed, { timeout: 300_000 }).toMatchObject({
      vaults: VAULTS.length,
      mended: { missing: 1, extra: 0, stale: 0, unreadable: 0, listings: 0, compliance: 0 },
      left: [],
    });
    const entries = await service.listAll("/audit/entries?event_type=inventory.mended");
    expect(entries.map(({ outcome, target }) => [outcome, target.id]).sort()).toEqual([
      ["intent", VAULTS[1]],
      ["success", VAULTS[1]],
    ]);
    expect(entries[0].details).toMatchObject({ missing: 1, rows: [`${asset!.partitionKey} ${asset!.rowKey}`] });
    expect(await fixture.tables.get(Assets, asset!.partitionKey, asset!.rowKey)).toBeDefined();
  }, 600_000);
});

describe("a lost row of a vault", () => {
  /** Runs a walk in the service, to its end. Without the records of earlier walks, it is due at once. */
  async function walkInService(fixture: ReturnType<typeof openReconciliation>) {
    for (const row of ["newest", "before"]) await fixture.tables.remove(Walks, WALKS, row);
    const started = await fetch(`${service.url}/admin/functions/startReconciliation`, { method: "POST" });
    expect(started.status).toBe(202);
    const completed = async () => (await service.admin("GET", "/system/reconciliation")).body.completed;
    await expect.poll(completed, { timeout: 300_000 }).not.toBeNull();
    return await completed();
  }

  test.each([
    ["the row is restored from its copy", false],
    ["without a copy, the re-scan finds the vault again", true],
  ])(
    "a vault without its own row keeps its assets and results, and is scanned again: %s",
    async (_, withoutCopy) => {
      const fixture = openWalk();
      const vault = VAULTS[3]!;
      const key = vaultInSubscriptionKey(SUBSCRIPTIONS[1], vault);
      const isOfAsset = ([row]: [string, string]) => row.startsWith("Assets ") && row.includes(vault);
      const before = new Map([...(await snapshot(fixture))].filter(isOfAsset));
      // Seven assets, each with a row by name and a row by expiry date in three partitions.
      expect(before.size).toBeGreaterThanOrEqual(7 * 6);
      const score = (await service.admin("GET", "/compliance/score")).body.score;
      await fixture.tables.remove(Vaults, VAULTS_PARTITION, `n!${vault}`);
      if (withoutCopy) await fixture.tables.remove(Vaults, VAULTS_PARTITION, key);
      const { mended, left } = await walkInService(fixture);
      expect([mended.missing, mended.extra, mended.compliance, left]).toEqual([1, 0, 0, []]);
      await service.waitForEmptyQueues();
      const vaultRow = () => fixture.tables.get(Vaults, VAULTS_PARTITION, `n!${vault}`);
      await expect.poll(async () => (await vaultRow())?.contents.secret, { timeout: 60_000 }).toBeTruthy();
      const after = new Map([...(await snapshot(fixture))].filter(isOfAsset));
      if (withoutCopy) expect([...after.keys()]).toEqual([...before.keys()]);
      else expect(differences(before, after)).toEqual([]);
      expect((await service.admin("GET", "/compliance/score")).body.score).toBe(score);
      const entries = await service.listAll(`/audit/entries?event_type=inventory.mended`);
      const ofVault = entries.filter(({ target }: { target: { id: string } }) => target.id === vault).slice(0, 2);
      expect(ofVault.map(({ details }: { details: object }) => details)).toEqual(
        Array(2).fill(expect.objectContaining({ vaultRow: "missing", restored: !withoutCopy, rescan: true })),
      );
      // The walk and the re-scan left nothing to repair.
      expect((await walkInService(fixture)).mended).toMatchObject({ missing: 0, extra: 0, stale: 0, unreadable: 0 });
    },
    600_000,
  );

  test("a vault that is gone loses its rows", async () => {
    const fixture = openWalk();
    const row = (await fixture.tables.get(
      Assets,
      partitions.vault(VAULTS[4]!),
      nameKey("secret", "password", VAULTS[4]!),
    ))!;
    const vault = "kv-gone-for-good";
    const asset = { ...withoutKeys(row), vaultName: vault, vaultId: row.vaultId.replace(VAULTS[4]!, vault) };
    const key = nameKey("secret", "password", vault);
    await fixture.tables.put(Assets, partitions.vault(vault), key, asset);
    expect((await walkInService(fixture)).mended).toMatchObject({ missing: 0, extra: 1 });
    expect(await fixture.tables.get(Assets, partitions.vault(vault), key)).toBeUndefined();
  }, 600_000);
});
