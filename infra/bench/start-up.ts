import path from "node:path";
import { runHost } from "../../test/host/run-host.ts";
import { TEST_APP } from "../../test/support/global-setup.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { median, ratio, type Section } from "./section.ts";

const RUNS = 9;

/** From the start of the process to its first answers, against an app with one empty function, taken in turns. */
export async function startUp(): Promise<Section> {
  const service = await Service.start({ company: "small" });
  try {
    await service.scan();
    const token = await service.signIn(ADMIN);
    const empty: number[] = [];
    const health: number[] = [];
    const assets: number[] = [];
    let modules: { health: string[]; assets: string[] } = { health: [], assets: [] };
    for (let run = 0; run < RUNS; run++) {
      empty.push(await first({ app: path.resolve(import.meta.dirname, "empty-app") }, "/health"));
      health.push(await first({ app: TEST_APP, env: service.environment }, "/health"));
      assets.push(await first({ app: TEST_APP, env: service.environment }, "/api/assets/discovery/assets", token));
    }
    modules = {
      health: await loadedBy(service, "/health"),
      assets: await loadedBy(service, "/api/assets/discovery/assets", token),
    };
    const base = median(empty);
    return {
      title: "Start-up of the built app",
      how: `Milliseconds from spawning the functions host to the first answer, median of ${RUNS}, taken in turns. Loaded are the bundle's own files and chunks.`,
      figures: [
        { what: "empty app, first answer", value: `${Math.round(base)} ms`, comparedWith: "" },
        {
          what: "first /health",
          value: `${Math.round(median(health))} ms, ${ratio(median(health), base)}`,
          comparedWith: "the empty app",
          bound: "≤ 1.5",
        },
        {
          what: "first authenticated asset list",
          value: `${Math.round(median(assets))} ms, ${ratio(median(assets), base)}`,
          comparedWith: "the empty app",
          bound: "≤ 3",
        },
        {
          what: "files loaded by /health",
          value: modules.health.join(", "),
          comparedWith: "no storage, identity or vault SDK",
        },
        { what: "files loaded by an asset list", value: modules.assets.join(", "), comparedWith: "tables only" },
      ],
    };
  } finally {
    await service.stop();
  }
}

async function first(options: Parameters<typeof runHost>[0], address: string, token?: string): Promise<number> {
  const begun = performance.now();
  const host = await runHost(options);
  const answer = await fetch(host.url + address, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${address} answered ${answer.status}`);
  const took = performance.now() - begun;
  await host.stop("SIGKILL");
  return took;
}

async function loadedBy(service: Service, address: string, token?: string): Promise<string[]> {
  const host = await service.addHost();
  await fetch(host.url + address, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  const { modules } = (await (await fetch(`${host.url}/__host/modules`)).json()) as { modules: string[] };
  return modules
    .map((module) => module.slice(module.lastIndexOf("/dist/") + 6))
    .filter((module) => !module.includes("/node_modules/"));
}
