import { afterAll, beforeAll, expect, test } from "vitest";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { app, Deployment, everything } from "./discovery-fixture.ts";

const MANY = IS_CAMPAIGN ? 100_000 : 3000;
const FEW = 100;
const PER_APP = 20;
const PER_UNIT = 2000;

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

/** Units of 100 apps that each use 20 secrets. The first 5 apps all use the first secret of the first vault. */
function company(edges: number) {
  const units: Deployment["company"]["units_"] = {};
  for (let first = 0; first < edges; first += PER_UNIT) {
    const count = Math.min(PER_UNIT, edges - first) / PER_APP;
    units[`s${first}`] = Array.from({ length: count }, (_, index) => {
      const number = first / PER_APP + index;
      const settings = Array.from({ length: PER_APP }, (_, at) => {
        const vault = `kv-${String(number % 500).padStart(3, "0")}`;
        const named = number < 5 && at === 0 ? { vault: "kv-000", secret: "shared" } : { vault, secret: `n${at}` };
        return [`S${at}`, named] as const;
      });
      return app(`app-${number}`, Object.fromEntries(settings));
    });
  }
  return units;
}

test(
  `with ${MANY} dependencies lists and the blast radius cost the requests that they cost with ${FEW}`,
  async () => {
    const costs: Record<string, number>[] = [];
    for (const [place, edges] of [FEW, MANY].entries()) {
      const proxy = proxies[place]!;
      const deployment = new Deployment(proxy.connectionString);
      deployment.company.units_ = company(edges);
      deployment.assets.set("kv-000.secret.shared", {
        asset: { type: "secret", name: "shared", vaultName: "kv-000" },
      } as never);
      expect(await deployment.run()).toMatchObject({ status: "completed", edges });
      const { fixture } = deployment.start();
      const page = { limit: 20, offset: 0, cursor: undefined };
      const counted: Record<string, number> = {};
      const cost = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
        const before = proxy.requests.length;
        const answer = await work();
        counted[what] = proxy.requests.length - before;
        return answer;
      };
      const first = await cost("first page", () => fixture.list({}, page));
      expect(first.page).toMatchObject({ total: edges, nextCursor: expect.any(String) });
      let last = first.page;
      await cost("next page", async () => {
        last = (await fixture.list({}, { ...page, cursor: last.nextCursor! })).page;
      });
      expect(last.items.length).toBe(20);
      const shared = { vaultName: "kv-000", type: "secret", name: "shared" } as const;
      const named = await cost("of an asset", () => fixture.list({ place: shared }, page));
      expect(named.page).toMatchObject({ total: 5 });
      await cost("of a vault", () => fixture.list({ vault: "kv-001" }, page));
      await cost("coverage", () => fixture.coverage(everything));
      const radius = await cost("blast radius", () => fixture.blastRadius("kv-000.secret.shared"));
      expect(radius.consumers.length).toBe(5);
      const before = proxy.requests.length;
      await deployment.run();
      counted["unchanged run, a unit"] = Math.ceil(
        (proxy.requests.length - before) / Object.keys(deployment.company.units_).length,
      );
      costs.push(counted);
    }
    console.info(JSON.stringify(costs));
    const { "unchanged run, a unit": of, ...few } = costs[0]!;
    const { "unchanged run, a unit": ofMany, ...many } = costs[1]!;
    expect(many).toEqual(few);
    expect(few).toEqual({
      "first page": 2,
      "next page": 2,
      "of an asset": 2,
      "of a vault": 2,
      coverage: 1,
      "blast radius": 3,
    });
    expect(ofMany).toBeLessThanOrEqual(of!);
  },
  MANY > 5000 ? 3_600_000 : 300_000,
);
