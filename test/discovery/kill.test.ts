import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { Service } from "../support/service.ts";

const VAULTS = 8;
const company: Company = {
  subscriptions: [
    {
      name: "Only",
      vaults: Array.from({ length: VAULTS }, (_, index) => ({
        name: `kv-${index}`,
        generate: { secrets: 20, keys: 4, certificates: 4 },
      })),
    },
  ],
};

/** Longer than a crashed worker's lease on a vault. */
const LEASES_ENDED_MS = 20_000;

const storageClock = movedClock();
let service: Service;
beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company,
    lease: 1,
    // The watch, which runs every minute, is needed to recover scans.
    schedules: true,
    env: { DISCOVERY_MAX_WORKERS: "3" },
    storageEnv: storageClock.environment,
  });
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});
// A failed first attempt may have left its host killed and its scan running.
beforeEach(async () => {
  service.tables.heal();
  service.cloud.control.clearFaults();
  if (service.hosts.length === 0) await service.addHost();
  const scans = await service.all("/api/assets/discovery/scans");
  for (const { scanId, status } of scans)
    if (status === "queued" || status === "running") await service.scanEnds(scanId);
});

const ROUNDS = IS_CAMPAIGN ? 40 : 2;

test(
  `killed at ${ROUNDS} writes drawn by the seed ${SEED}, every scan still ends, and the inventory equals the cloud`,
  async () => {
    const dice = new Dice(SEED);
    const scans = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
      allowInsecureConnection: true,
    });
    service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 20 } });
    const kills: string[] = [];
    let amongVaults = 0;
    for (let round = 0; round < ROUNDS; round++) {
      changeEveryVault(round);
      // One kill in each equal part of the writes of such a scan. The first scan makes many more writes.
      const write = 1 + Math.floor(((round + dice.next()) / ROUNDS) * WRITES);
      const isApplied = dice.oneIn(2);
      const started = await service.admin("POST", "/api/assets/discovery/scan", {
        mode: round % 3 === 0 ? "full" : "delta",
      });
      expect(started.status).toBe(201);
      const { scanId } = started.body as { scanId: string };
      const isOver = async () => {
        const { status } = await scans.getEntity<{ status: string }>(`scan:${scanId}`, "0");
        return status !== "queued" && status !== "running";
      };
      await killedAtWrite(write, isApplied, isOver);

      // The killed process left a scan that is not over.
      const { status } = await scans.getEntity<{ status: string }>(`scan:${scanId}`, "0");
      const vaultsDone = await rowsOf(scans, `PartitionKey eq 'scan:${scanId}' and RowKey ge '3!' and RowKey lt '4'`);
      kills.push(`write ${write}${isApplied ? "" : ", not made"}: ${status}, ${vaultsDone} of ${VAULTS} vaults done`);
      expect(["queued", "running"], kills.at(-1)).toContain(status);
      if (vaultsDone > 0 && vaultsDone < VAULTS) amongVaults++;

      await storageClock.add(LEASES_ENDED_MS);
      await service.addHost();
      const scan = await service.scanEnds(scanId);
      expect(scan.status, JSON.stringify(scan)).toBe("completed");
      expect(scan.progress).toMatchObject({ vaultsTotal: VAULTS, vaultsDone: VAULTS, vaultsFailed: 0 });
      await expectInventoryOfTheCloud();
    }
    console.log(kills.join("\n"));
    expect(amongVaults, "kills with some vaults done and others not").toBeGreaterThanOrEqual(1);
  },
  60_000 + ROUNDS * 200_000,
);

test("a re-scan that waits when its host is killed is run by another host: a new secret appears after its event, without a scan", async () => {
  const storage = service.azurite.connectionString();
  await service.cloud.control.deliverEvents({ connectionString: storage, queue: "vault-events" });
  await service.scan({ mode: "delta" });
  const scans = await service.all("/api/assets/discovery/scans");
  service.cloud.control.putSecret("kv-0", { name: "from-an-event", expiresInDays: 9 });
  const client = TableClient.fromConnectionString(storage, "Scans", { allowInsecureConnection: true });
  const wanted = () => rowsOf(client, "PartitionKey eq 'looks'");
  await expect.poll(wanted, { timeout: 150_000 }).toBe(1);
  await service.hosts.splice(0)[0]!.stop("SIGKILL");
  await service.addHost();
  // The earlier scans have just read the vault, so that the re-scan waits for half a minute.
  await storageClock.add(31_000);
  await expect.poll(wanted, { timeout: 150_000 }).toBe(0);
  const { body } = await service.admin("GET", "/api/assets/discovery/assets/kv-0.secret.from-an-event");
  expect(body).toMatchObject({ vaultName: "kv-0", daysUntilExpiry: 8 });
  const { body: vaults } = await service.admin("GET", "/api/assets/discovery/vaults");
  expect(vaults.items[0]).toMatchObject({ name: "kv-0", lastEventAt: expect.any(String) });
  const [subscription] = await service.all("/subscriptions");
  expect(subscription.counts).toMatchObject({ vaults: VAULTS, vaultsWithEvents: 1 });
  expect(await service.all("/api/assets/discovery/scans")).toEqual(scans);
  expect(await service.all("/audit/entries?event_type=vault.changed")).toMatchObject([
    { details: { added: ["kv-0.secret.from-an-event"] } },
  ]);
  await service.cloud.control.deliverEvents(undefined);
});

/**
 * Fewer writes than a scan makes that finds a few changes in each of the eight vaults, so that each kill interrupts the scan.
 */
const WRITES = 48;

/** Adds, changes and removes something in every vault. */
function changeEveryVault(round: number): void {
  for (let index = 0; index < VAULTS; index++) {
    const vault = `kv-${index}`;
    service.cloud.control.putSecret(vault, { name: `round-${round}`, expiresInDays: 3 + round });
    service.cloud.control.putSecret(vault, { name: "moving", expiresInDays: 100 - round });
    if (round > 1) service.cloud.control.remove(vault, "secrets", `round-${round - 2}`);
  }
}

/**
 * Kills the only host at its n-th write to the tables from now on, before or after storage applies it. Resolves when the host
 * has ended.
 */
async function killedAtWrite(write: number, isApplied: boolean, isOver: () => Promise<boolean>): Promise<void> {
  const [host] = service.hosts.splice(0);
  let writes = 0;
  let dead: Promise<unknown> | undefined;
  service.tables.fail([isApplied ? "LostAnswer" : "ServerBusy"], ({ method, path }) => {
    if (method === "GET" || path.startsWith("LocalHostLeases") || ++writes !== write) return false;
    dead = host!.stop("SIGKILL");
    return true;
  });
  while (!dead) {
    if (await isOver()) throw new Error(`The scan was over after ${writes} writes, before it was killed at ${write}`);
    await delay(50);
  }
  await dead;
}

async function rowsOf(client: TableClient, filter: string): Promise<number> {
  let count = 0;
  for await (const _ of client.listEntities({ queryOptions: { filter, select: ["RowKey"] } })) count++;
  return count;
}

/** Compares every list and total of the inventory with the cloud. */
async function expectInventoryOfTheCloud(): Promise<void> {
  const expected = new Map<string, string>();
  for (let index = 0; index < VAULTS; index++) {
    for (const kind of ["secrets", "keys", "certificates"] as const) {
      for (const item of service.cloud.control.items(`kv-${index}`, kind)) {
        expected.set(`kv-${index}.${kind.slice(0, -1)}.${item.name.toLowerCase()}`, item.expires ?? "never");
      }
    }
  }
  const ids = [...expected.keys()].sort();
  const byName = await service.all("/api/assets/discovery/assets");
  expect(byName.map((asset) => asset.id).sort()).toEqual(ids);
  const seconds = (instant: string | null) =>
    instant === null || instant === "never" ? "never" : Date.parse(instant) / 1000;
  for (const asset of byName)
    expect([asset.id, seconds(asset.expiresOn)]).toEqual([asset.id, seconds(expected.get(asset.id)!)]);
  const byExpiry = await service.all("/api/assets/discovery/assets?sort=expiresOn");
  expect(byExpiry.map((asset) => asset.id).sort()).toEqual(ids);
  const { body } = await service.admin("GET", "/api/assets/discovery/assets?limit=1");
  expect(body.total).toBe(ids.length);
  for (let index = 0; index < VAULTS; index++) {
    const mine = ids.filter((id) => id.startsWith(`kv-${index}.`));
    const listed = await service.all(`/api/assets/discovery/assets?vault=kv-${index}&sort=expiresOn`);
    expect(listed.map((asset) => asset.id).sort()).toEqual(mine);
  }
}
