// Kills the host process at chosen table writes of a scan, and while a re-scan waits. Another host must complete the work.
import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { Service } from "../support/service.ts";

const VAULT_COUNT = 8;
const company: Company = {
  subscriptions: [
    {
      name: "Only",
      vaults: Array.from({ length: VAULT_COUNT }, (_, index) => ({
        name: `kv-${index}`,
        generate: { secrets: 20, keys: 4, certificates: 4 },
      })),
    },
  ],
};

/** After this time, a killed worker's lease on a vault has expired. */
const LEASES_EXPIRED_MS = 20_000;

const storageClock = movedClock();
let service: Service;
beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company,
    // Seconds for which a message of a killed host stays hidden.
    lease: 1,
    // Timers run: one of them finds scans of crashed workers every minute and lets them continue.
    schedules: true,
    env: { DISCOVERY_MAX_WORKERS: "3" },
    storageEnv: storageClock.environment,
  });
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});
// If a failed test is repeated, its first attempt may have left a killed host and a running scan.
beforeEach(async () => {
  service.tables.removeFaults();
  service.cloud.control.clearFaults();
  if (service.hosts.length === 0) await service.addHost();
  const scans = await service.listAll("/api/assets/discovery/scans");
  for (const { scanId, status } of scans)
    if (status === "queued" || status === "running") await service.waitForScan(scanId);
});

/** Number of kills. Each interrupts a scan of its own. */
const KILLS = IS_CAMPAIGN ? 40 : 2;

test(
  `every scan completes although its host is killed at a random write (${KILLS} kills, seed ${SEED})`,
  async () => {
    const dice = new Dice(SEED);
    const scans = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
      allowInsecureConnection: true,
    });
    service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 20 } });
    const kills: string[] = [];
    let killsBetweenVaults = 0;
    for (let round = 0; round < KILLS; round++) {
      changeEveryVault(round);
      // The writes of a scan are divided into equal parts, one for each kill. A random write of the part is chosen.
      const write = 1 + Math.floor(((round + dice.next()) / KILLS) * MAX_KILLED_WRITE);
      const isApplied = dice.oneIn(2);
      const started = await service.admin("POST", "/api/assets/discovery/scan", {
        mode: round % 3 === 0 ? "full" : "delta",
      });
      expect(started.status).toBe(201);
      const { scanId } = started.body as { scanId: string };
      // The scan's own row has the key `0` in the scan's partition. Rows of finished vaults have keys that start with `3!`.
      const hasEnded = async () => {
        const { status } = await scans.getEntity<{ status: string }>(`scan:${scanId}`, "0");
        return status !== "queued" && status !== "running";
      };
      await killHostAtWrite(write, isApplied, hasEnded);

      // The killed process left a scan that has not ended.
      const { status } = await scans.getEntity<{ status: string }>(`scan:${scanId}`, "0");
      const vaultsDone = await countRows(
        scans,
        `PartitionKey eq 'scan:${scanId}' and RowKey ge '3!' and RowKey lt '4'`,
      );
      kills.push(
        `write ${write}${isApplied ? "" : ", not applied"}: ${status}, ${vaultsDone} of ${VAULT_COUNT} vaults done`,
      );
      expect(["queued", "running"], kills.at(-1)).toContain(status);
      if (vaultsDone > 0 && vaultsDone < VAULT_COUNT) killsBetweenVaults++;

      await storageClock.add(LEASES_EXPIRED_MS);
      await service.addHost();
      const scan = await service.waitForScan(scanId);
      expect(scan.status, JSON.stringify(scan)).toBe("completed");
      expect(scan.progress).toMatchObject({ vaultsTotal: VAULT_COUNT, vaultsDone: VAULT_COUNT, vaultsFailed: 0 });
      await expectInventoryEqualsCloud();
    }
    console.log(kills.join("\n"));
    expect(killsBetweenVaults, "kills after which some but not all vaults were done").toBeGreaterThanOrEqual(1);
  },
  60_000 + KILLS * 200_000,
);

test("another host runs a re-scan that waited when its host was killed", async () => {
  const storage = service.azurite.connectionString();
  await service.cloud.control.deliverEvents({ connectionString: storage, queue: "vault-events" });
  await service.scan({ mode: "delta" });
  const scans = await service.listAll("/api/assets/discovery/scans");
  service.cloud.control.putSecret("kv-0", { name: "from-an-event", expiresInDays: 9 });
  const client = TableClient.fromConnectionString(storage, "Scans", { allowInsecureConnection: true });
  // The partition of re-scans has one row for each vault that waits for a re-scan or is being re-scanned.
  const countWaitingRescans = () => countRows(client, "PartitionKey eq 'looks'");
  await expect.poll(countWaitingRescans, { timeout: 150_000 }).toBe(1);
  await service.hosts.splice(0)[0]!.stop("SIGKILL");
  await service.addHost();
  // The earlier scans have just read the vault, so the re-scan waits for 30 seconds.
  await storageClock.add(31 * SECOND_MS);
  await expect.poll(countWaitingRescans, { timeout: 150_000 }).toBe(0);
  const { body } = await service.admin("GET", "/api/assets/discovery/assets/kv-0.secret.from-an-event");
  // The secret expires nine days after it was written, so eight whole days are left.
  expect(body).toMatchObject({ vaultName: "kv-0", daysUntilExpiry: 8 });
  const { body: vaults } = await service.admin("GET", "/api/assets/discovery/vaults");
  expect(vaults.items[0]).toMatchObject({ name: "kv-0", lastEventAt: expect.any(String) });
  const [subscription] = await service.listAll("/subscriptions");
  expect(subscription.counts).toMatchObject({ vaults: VAULT_COUNT, vaultsWithEvents: 1 });
  expect(await service.listAll("/api/assets/discovery/scans")).toEqual(scans);
  expect(await service.listAll("/audit/entries?event_type=vault.changed")).toMatchObject([
    { details: { added: ["kv-0.secret.from-an-event"] } },
  ]);
  await service.cloud.control.deliverEvents(undefined);
});

/**
 * Kills happen up to this write. A scan with a few changes in each of the eight vaults makes more, so each kill interrupts it.
 */
const MAX_KILLED_WRITE = 48;

/** Adds, changes and removes a secret in every vault. */
function changeEveryVault(round: number): void {
  for (let index = 0; index < VAULT_COUNT; index++) {
    const vault = `kv-${index}`;
    service.cloud.control.putSecret(vault, { name: `round-${round}`, expiresInDays: 3 + round });
    service.cloud.control.putSecret(vault, { name: "moving", expiresInDays: 100 - round });
    if (round > 1) service.cloud.control.remove(vault, "secrets", `round-${round - 2}`);
  }
}

/**
 * Kills the only host at its n-th write to the tables from now on, after or without storage applying that write. Resolves when
 * the process has ended.
 */
async function killHostAtWrite(write: number, isApplied: boolean, hasEnded: () => Promise<boolean>): Promise<void> {
  const [host] = service.hosts.splice(0);
  let writes = 0;
  let killed: Promise<unknown> | undefined;
  service.tables.fail([isApplied ? "LostAnswer" : "ServerBusy"], ({ method, path }) => {
    if (method === "GET" || path.startsWith("LocalHostLeases") || ++writes !== write) return false;
    killed = host!.stop("SIGKILL");
    return true;
  });
  while (!killed) {
    if (await hasEnded()) throw new Error(`The scan ended after ${writes} writes, before the kill at write ${write}.`);
    await delay(50);
  }
  await killed;
}

async function countRows(client: TableClient, filter: string): Promise<number> {
  let count = 0;
  for await (const _ of client.listEntities({ queryOptions: { filter, select: ["RowKey"] } })) count++;
  return count;
}

/** Compares every list and total of the inventory with the cloud. */
async function expectInventoryEqualsCloud(): Promise<void> {
  const expected = new Map<string, string>();
  for (let index = 0; index < VAULT_COUNT; index++) {
    for (const kind of ["secrets", "keys", "certificates"] as const) {
      for (const item of service.cloud.control.items(`kv-${index}`, kind)) {
        expected.set(`kv-${index}.${kind.slice(0, -1)}.${item.name.toLowerCase()}`, item.expires ?? "never");
      }
    }
  }
  const ids = [...expected.keys()].sort();
  const byName = await service.listAll("/api/assets/discovery/assets");
  expect(byName.map((asset) => asset.id).sort()).toEqual(ids);
  const seconds = (instant: string | null) =>
    instant === null || instant === "never" ? "never" : Date.parse(instant) / 1000;
  for (const asset of byName)
    expect([asset.id, seconds(asset.expiresOn)]).toEqual([asset.id, seconds(expected.get(asset.id)!)]);
  const byExpiry = await service.listAll("/api/assets/discovery/assets?sort=expiresOn");
  expect(byExpiry.map((asset) => asset.id).sort()).toEqual(ids);
  const { body } = await service.admin("GET", "/api/assets/discovery/assets?limit=1");
  expect(body.total).toBe(ids.length);
  for (let index = 0; index < VAULT_COUNT; index++) {
    const idsOfVault = ids.filter((id) => id.startsWith(`kv-${index}.`));
    const listed = await service.listAll(`/api/assets/discovery/assets?vault=kv-${index}&sort=expiresOn`);
    expect(listed.map((asset) => asset.id).sort()).toEqual(idsOfVault);
  }
}
