import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { Service } from "../support/service.ts";

const VAULTS = 8;
const company: Company = {
  subscriptions: [
    {
      name: "Only",
      vaults: Array.from({ length: VAULTS }, (_, index) => ({
        name: `kv-${index}`,
        generate: { secrets: 60, keys: 4, certificates: 4 },
      })),
    },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, lease: 1, env: { DISCOVERY_MAX_WORKERS: "3" } });
});
afterAll(() => service?.stop());

/** Moments after the start of a scan, spread over planning, listing, writing and finishing. */
const MOMENTS = [30, 120, 250, 400, 600, 850, 1100, 1400, 1800, 2300];

test("killed at ten moments, every scan still ends, and the inventory is that of the cloud", async () => {
  service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 20 } });
  const expected = new Map<string, string>();
  for (let round = 0; round < MOMENTS.length; round++) {
    // Every round has something to add, to change and to remove in every vault.
    for (let index = 0; index < VAULTS; index++) {
      const vault = `kv-${index}`;
      service.cloud.control.putSecret(vault, { name: `round-${round}`, expiresInDays: 3 + round });
      service.cloud.control.putSecret(vault, { name: "moving", expiresInDays: 100 - round });
      if (round > 1) service.cloud.control.remove(vault, "secrets", `round-${round - 2}`);
    }
    const started = await service.admin("POST", "/api/assets/discovery/scan", {
      mode: round % 3 === 0 ? "full" : "delta",
    });
    expect(started.status).toBe(201);
    await delay(MOMENTS[round]!);
    await service.hosts[0]!.stop("SIGKILL");
    service.hosts.length = 0;
    await service.addHost();
    const scan = await service.scanEnds(started.body.scanId, 100_000);
    expect(scan.status, JSON.stringify(scan)).toBe("completed");
    expect(scan.progress).toMatchObject({ vaultsTotal: VAULTS, vaultsDone: VAULTS, vaultsFailed: 0 });
    await expectInventoryOfTheCloud(expected);
  }
}, 280_000);

/** Every list and total of the inventory, against what the cloud holds. */
async function expectInventoryOfTheCloud(expected: Map<string, string>): Promise<void> {
  expected.clear();
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
