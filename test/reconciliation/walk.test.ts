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
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { Service } from "../support/service.ts";
import { companyOf, differences, openReconciliation, SUBSCRIPTIONS, snapshot } from "./reconciliation-fixture.ts";

const VAULTS = Array.from({ length: 8 }, (_, at) => `kv-walked-${at}`);

let service: Service;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true, company: companyOf(VAULTS) });
  expect((await service.scan({ mode: "full" })).status).toBe("completed");
}, 600_000);
afterAll(() => service?.stop());

describe("while a vault is written", () => {
  test("a worker between its copies and its own rows is not disturbed, and the record names its vault", async () => {
    const fixture = openReconciliation(service.azurite.connectionString());
    const vault = VAULTS[0]!;
    const { writer } = fixture;
    const before = await fixture.tables.get(Assets, partitions.vault(vault), nameKey("secret", "password", vault));
    const asset = withoutKeys(before!);
    const known = await writer.readForUpdate(vault);
    const after = { ...asset, enabled: false, expiresOn: asset.expiresOn! + 1, content: "changed" };
    const inBetween = Promise.withResolvers<void>();
    const walked = Promise.withResolvers<void>();
    // The rows written here are in no list, so that the next scan restores them.
    const record = { ...withoutKeys(known.row!), listings: {}, contents: {} };
    const writing = writer.apply(
      known,
      record,
      [{ type: "secret", name: asset.name, before: asset, after }],
      "worker",
      async () => async () => {
        inBetween.resolve();
        await walked.promise;
      },
    );
    await inBetween.promise;
    const standing = await snapshot(fixture);
    await fixture.walk();
    const { newest } = await fixture.reconciliation.status();
    expect(differences(standing, await snapshot(fixture))).toEqual([]);
    expect(Object.values(newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(newest!.left).toContainEqual({ vault, reason: "it was being written" });
    walked.resolve();
    await writing;
    expect((await service.scan({ mode: "force" })).status).toBe("completed");
    expect(fixture.events).toEqual([]);
  }, 600_000);

  test("concurrent scans and walks leave nothing to repair", async () => {
    const fixture = openReconciliation(service.azurite.connectionString(), { runMs: 0, rowsPerStep: 50, pauseMs: 5 });
    let walks = 0;
    let scanning = true;
    const walking = (async () => {
      while (scanning || walks === 0) {
        await fixture.walk();
        walks++;
      }
    })();
    const changed: string[] = [];
    for (let round = 0; round < 2; round++) {
      for (const vault of VAULTS) {
        const path = `${service.cloud.controlUrl}/vaults/${vault}/secrets`;
        const body = JSON.stringify({ name: round % 2 ? "password" : `added-${round}`, expiresInDays: 50 + round });
        const answer = await fetch(path, { method: "POST", body, headers: { "content-type": "application/json" } });
        expect(answer.ok, await answer.text()).toBe(true);
      }
      const { status, progress } = await service.scan({ mode: round % 2 ? "force" : "delta" });
      expect(status).toBe("completed");
      changed.push(`${progress.assetsAdded}/${progress.assetsUpdated}`);
    }
    scanning = false;
    await walking;
    expect(changed).toEqual(["8/0", "0/8"]);
    expect(walks).toBeGreaterThanOrEqual(1);
    expect(fixture.events).toEqual([]);
    const before = await snapshot(fixture);
    await fixture.walk();
    expect(fixture.events).toEqual([]);
    expect((await fixture.reconciliation.status()).newest!.leftTotal).toBe(0);
    expect(differences(before, await snapshot(fixture))).toEqual([]);
  }, 600_000);
});

test("a fault just behind the position of a walk that takes days is repaired within a week, with some minutes of work per hour", async () => {
  const { RECONCILIATION_SCHEDULE } = loadConfig({ ...service.environment, RECONCILIATION_SCHEDULE: "" });
  expect(RECONCILIATION_SCHEDULE).toMatch(/^0 \d+ \* \* \* \*$/);
  // A row per step, and a minute each time the clock is read: few steps an hour, some days per walk.
  const fixture = openReconciliation(service.azurite.connectionString(), { rowsPerStep: 1, pauseMs: 1 }, MINUTE_MS);
  const before = (await fixture.reconciliation.status()).newest?.walkId;
  const hour = async () => {
    await fixture.reconciliation.run("request");
    fixture.pass(HOUR_MS);
  };
  const walk = async () => (await fixture.reconciliation.status()).newest!;
  const started = async () => (await walk()).walkId !== before && (await walk()).stage !== "vaults";
  do await hour();
  while (!(await started()));
  const vault = VAULTS[0]!;
  const copy = vaultInSubscriptionKey(SUBSCRIPTIONS[0], vault);
  const isThere = () => fixture.tables.get(Vaults, VAULTS_PARTITION, copy);
  await fixture.tables.remove(Vaults, VAULTS_PARTITION, copy);
  const { walkId } = await walk();
  let hours = 0;
  for (; !(await isThere()) && hours <= 7 * 24; hours++) await hour();
  expect((await walk()).walkId).not.toBe(walkId);
  expect(hours).toBeLessThanOrEqual(7 * 24);
  const { startedAt, finishedAt } = (await fixture.reconciliation.status()).completed!;
  expect(Date.parse(finishedAt!) - Date.parse(startedAt)).toBeGreaterThan(DAY_MS);
}, 600_000);

describe("the cost of a walk", () => {
  test("is two requests per vault, one for its partition's name, one for its subscription, and few for all", async () => {
    const fixture = openReconciliation(service.tables.connectionString);
    // Completes a current walk, so that the next one is a whole one.
    await fixture.walk();
    service.forgetTables();
    expect(await fixture.walk()).toBe(1);
    // The walk runs in this process. Requests of the host's functions are not counted.
    const requests = service.tableRequests().filter(({ by }) => by === undefined);
    const walk = requests.filter(({ path }) => !/Audit/.test(path));
    const perVault = 4 * VAULTS.length;
    const results = 2 * (ASSET_CHECKS.length + 2);
    const partitionsAndStages = 3 * SUBSCRIPTIONS.length + 33;
    // Reads all vaults twice, the changed ones, and the totals before and after and their renewal. The same for the results.
    const totals = 24;
    expect(walk.length).toBeLessThanOrEqual(perVault + results + partitionsAndStages + totals);
    expect(walk.length).toBeGreaterThan(perVault + results);
    // Fences of removed vaults may be everywhere except in a known vault's own partition.
    const fenced = walk.flatMap(
      ({ filter }) => /^PartitionKey eq '(.+)' and RowKey ge 'f!'/.exec(filter ?? "")?.[1] ?? [],
    );
    expect(fenced).toEqual([partitions.all, ...SUBSCRIPTIONS.map((id) => partitions.subscription(id))]);
    // Of the whole table only the names of partitions are read, one row at a time.
    for (const { filter, top } of requests.filter(({ method, path }) => method === "GET" && path.endsWith("()"))) {
      if (!filter?.startsWith("PartitionKey eq '"))
        expect([filter ?? "PartitionKey gt ''", top]).toEqual([expect.stringMatching(/^PartitionKey gt '[^']*'$/), 1]);
    }
  }, 600_000);
});

describe("totals", () => {
  /** Each module's row of totals, with the columns of its counts. */
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
    const asked = ["/api/assets/summary", assets, `${assets}&expiresBefore=2028-01-01`, "/compliance/score"];
    const answers = await Promise.all(asked.map((path) => service.admin("GET", path)));
    expect(answers.map(({ status }) => status)).toEqual(asked.map(() => 200));
    const [summary, list, ending, score] = answers.map(({ body }) => body);
    return {
      assets: summary.byType,
      lists: [list, ending].map(({ total, items }) => ({ total, items })),
      score: score.score,
    };
  }

  test("that are outdated or corrupt are recomputed and recorded, although no vault changed since", async () => {
    const fixture = openReconciliation(service.azurite.connectionString());
    const before = await Promise.all(
      TOTALS.map(async ({ table, partitionKey, rowKey, columns }) => {
        const row: Record<string, unknown> = await fixture.raw(table).getEntity(partitionKey, rowKey);
        return columns.map((column) => row[column] as Uint8Array);
      }),
    );
    const body = JSON.stringify({ name: `ended-${randomUUID()}`, expiresInDays: -1 });
    const headers = { "content-type": "application/json" };
    await fetch(`${service.cloud.controlUrl}/vaults/${VAULTS[2]}/secrets`, { method: "POST", body, headers });
    expect((await service.scan({ mode: "delta" })).status).toBe("completed");
    const whole = await readState();

    /** Replaces them by the given kind of fault. */
    const planted: [fault: "stale" | "unreadable", bytes: (old: Uint8Array) => Uint8Array][] = [
      ["stale", (old) => old],
      ["unreadable", () => Buffer.from("garbage")],
      ["unreadable", () => deflateRawSync(Buffer.alloc(8, 0xff))],
      ["unreadable", () => new Uint8Array()],
    ];
    for (const [fault, bytes] of planted) {
      for (const [at, { table, partitionKey, rowKey, columns }] of TOTALS.entries()) {
        const values = Object.fromEntries(columns.map((column, of) => [column, bytes(before[at]![of]!)]));
        await fixture.raw(table).updateEntity({ partitionKey, rowKey, ...values }, "Merge");
      }
      const answered = await readState();
      if (fault === "stale") expect(answered.score).not.toBe(whole.score);
      else expect(answered).toEqual(whole);
      fixture.events.splice(0);
      await fixture.walk();
      expect((await fixture.reconciliation.status()).newest!.mended).toMatchObject({ [fault]: 2 });
      const entered = fixture.events.map(({ type, outcome, details }) => `${type} ${outcome} ${details!.totals}`);
      expect(entered).toEqual(
        ["inventory.mended", "compliance.mended"].flatMap((type) => [
          `${type} intent ${fault}`,
          `${type} success ${fault}`,
        ]),
      );
      expect(await readState()).toEqual(whole);
    }
  }, 600_000);
});

describe("in the service", () => {
  test("the timer starts a walk, and users see when it was complete and what it repaired", async () => {
    const fixture = openReconciliation(service.azurite.connectionString());
    const first = await service.admin("GET", "/system/reconciliation");
    expect(first.status).toBe(200);
    const asset = await fixture.tables.get(Assets, partitions.all, nameKey("key", "signing", VAULTS[1]!));
    await fixture.tables.remove(Assets, asset!.partitionKey, asset!.rowKey);
    // As if the last walk had started days ago.
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
    const entries = await service.all("/audit/entries?event_type=inventory.mended");
    expect(entries.map(({ outcome, target }) => [outcome, target.id]).sort()).toEqual([
      ["intent", VAULTS[1]],
      ["success", VAULTS[1]],
    ]);
    expect(entries[0].details).toMatchObject({ missing: 1, rows: [`${asset!.partitionKey} ${asset!.rowKey}`] });
    expect(await fixture.tables.get(Assets, asset!.partitionKey, asset!.rowKey)).toBeDefined();
  }, 600_000);
});
