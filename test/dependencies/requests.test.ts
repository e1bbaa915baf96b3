import { afterAll, beforeAll, expect, test } from "vitest";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { app, Deployment, FIRST_1000 } from "./discovery-fixture.ts";

// Table requests of reads must not grow with the number of dependencies.

/** Numbers of dependencies in the two compared deployments. A campaign is a long run of the tests with more cases. */
const MANY = IS_CAMPAIGN ? 100_000 : 3000;
const FEW = 100;
const DEPENDENCIES_PER_APP = 20;
const DEPENDENCIES_PER_UNIT = 2000;

let storage: TestStorage;
let proxies: TableProxy[] = [];
beforeAll(async () => {
  storage = await openStorage(["few", "many"]);
  proxies = await Promise.all(["few", "many"].map((name) => startTableProxy(storage.connectionString(name))));
});
afterAll(async () => {
  await Promise.all(proxies.map((proxy) => proxy.stop()));
  await storage?.stop();
});

/**
 * Returns units (parts of the source that are read as one piece, such as a subscription) of 100 apps that each use 20 secrets. The
 * first five apps also share the secret `shared` in kv-000.
 */
function company(edges: number) {
  const units: Deployment["company"]["itemsByUnit"] = {};
  for (let first = 0; first < edges; first += DEPENDENCIES_PER_UNIT) {
    const count = Math.min(DEPENDENCIES_PER_UNIT, edges - first) / DEPENDENCIES_PER_APP;
    units[`s${first}`] = Array.from({ length: count }, (_, index) => {
      const number = first / DEPENDENCIES_PER_APP + index;
      const settings = Array.from({ length: DEPENDENCIES_PER_APP }, (_, setting) => {
        const vault = `kv-${String(number % 500).padStart(3, "0")}`;
        const asset =
          number < 5 && setting === 0 ? { vault: "kv-000", secret: "shared" } : { vault, secret: `n${setting}` };
        return [`S${setting}`, asset] as const;
      });
      return app(`app-${number}`, Object.fromEntries(settings));
    });
  }
  return units;
}

test(
  `lists and the blast radius need as many table requests with ${MANY} dependencies as with ${FEW}`,
  async () => {
    const costs: Record<string, number>[] = [];
    for (const [index, edges] of [FEW, MANY].entries()) {
      const proxy = proxies[index]!;
      const deployment = new Deployment(proxy.connectionString);
      deployment.company.itemsByUnit = company(edges);
      deployment.assets.set("kv-000.secret.shared", {
        asset: { type: "secret", name: "shared", vaultName: "kv-000" },
      } as never);
      expect(await deployment.run()).toMatchObject({ status: "completed", edges });
      const { dependencies } = deployment.start();
      const page = { limit: 20, offset: 0, cursor: undefined };
      const counted: Record<string, number> = {};
      const countRequests = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
        const before = proxy.requests.length;
        const answer = await work();
        counted[what] = proxy.requests.length - before;
        return answer;
      };
      const first = await countRequests("first page", () => dependencies.list({}, page));
      expect(first.page).toMatchObject({ total: edges, nextCursor: expect.any(String) });
      let last = first.page;
      await countRequests("next page", async () => {
        last = (await dependencies.list({}, { ...page, cursor: last.nextCursor! })).page;
      });
      expect(last.items.length).toBe(20);
      const shared = { vaultName: "kv-000", type: "secret", name: "shared" } as const;
      const named = await countRequests("of an asset", () => dependencies.list({ asset: shared }, page));
      expect(named.page).toMatchObject({ total: 5 });
      await countRequests("of a vault", () => dependencies.list({ vault: "kv-001" }, page));
      await countRequests("coverage", () => dependencies.coverage(FIRST_1000));
      const radius = await countRequests("blast radius", () => dependencies.blastRadius("kv-000.secret.shared"));
      expect(radius.consumers.length).toBe(5);
      const before = proxy.requests.length;
      await deployment.run();
      counted["unchanged run, a unit"] = Math.ceil(
        (proxy.requests.length - before) / Object.keys(deployment.company.itemsByUnit).length,
      );
      costs.push(counted);
    }
    console.info(JSON.stringify(costs));
    const { "unchanged run, a unit": ofFew, ...few } = costs[0]!;
    const { "unchanged run, a unit": ofMany, ...many } = costs[1]!;
    expect(many).toEqual(few);
    // Each list reads the units and one page of dependencies. The coverage is empty, so it takes only the read of the units.
    expect(few).toEqual({
      "first page": 2,
      "next page": 2,
      "of an asset": 2,
      "of a vault": 2,
      coverage: 1,
      "blast radius": 3,
    });
    expect(ofMany).toBeLessThanOrEqual(ofFew!);
  },
  MANY > 5000 ? 3_600_000 : 300_000,
);
