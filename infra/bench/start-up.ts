import { readFileSync } from "node:fs";
import path from "node:path";
import { runHost } from "functions-host/test/run-host.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { TEST_APP } from "../../test/support/test-app.ts";
import type { BuiltApp } from "../build/build.ts";
import { processFigures } from "./process.ts";
import { atMost, type Figure, ratio, type Section } from "./section.ts";

const RUNS = Number(process.env.START_UP_RUNS ?? 9);

/** Measures the time from the start of a process to its first responses. Alternates with an app with one empty function. */
export async function startUp(): Promise<Section> {
  const service = await Service.start({ company: "small" });
  try {
    await service.scan();
    const token = await service.signIn(ADMIN);
    const empty: number[] = [];
    const health: number[] = [];
    const assets: number[] = [];
    for (let run = 0; run < RUNS; run++) {
      empty.push(
        await first({ app: path.resolve(import.meta.dirname, "empty-app"), env: service.environment }, "/health"),
      );
      health.push(await first({ app: TEST_APP, env: service.environment }, "/health"));
      assets.push(await first({ app: TEST_APP, env: service.environment }, "/api/assets/discovery/assets", token));
    }
    const healthLoads = await loadedBy(service, "/health");
    const assetsLoad = await loadedBy(service, "/api/assets/discovery/assets", bearer(token));
    const timersLoad = await loadedByTimers(service);
    const base = Math.min(...empty);
    return {
      title: "Start-up of the built app",
      how: `Time from starting the functions host to the first answer: the shortest of ${RUNS}, in turns, with a warm compile cache. Queues and timers are off, because the platform runs them in another process. The loaded SDKs follow from esbuild's description of the bundle. App Configuration is configured.`,
      figures: [
        { what: "empty app, first answer", value: `${Math.round(base)} ms`, comparedWith: "" },
        {
          what: "first /health",
          value: `${Math.round(Math.min(...health))} ms, ${ratio(Math.min(...health), base)}`,
          comparedWith: "the empty app",
          bound: atMost(Math.min(...health) / base, 1.5),
        },
        {
          what: "first authenticated asset list",
          value: `${Math.round(Math.min(...assets))} ms, ${ratio(Math.min(...assets), base)}`,
          comparedWith: "the empty app",
          bound: atMost(Math.min(...assets) / base, 3),
        },
        loaded("/health", healthLoads, []),
        size("/health", healthLoads, 450),
        loaded("an asset list", assetsLoad, ["@azure/app-configuration", "@azure/data-tables"]),
        size("an asset list", assetsLoad, 2_500),
        loaded("watchScans, each minute", await loadedBy(service, timerAddress("watchScans")), ["@azure/data-tables"]),
        {
          what: "files for PDF and fonts loaded by an asset list and by every timer",
          value: [...assetsLoad.pdf, ...timersLoad.pdf].join(", ") || "none",
          comparedWith: `${timersLoad.files} files of ${Math.round(timersLoad.bytes / 1024)} KB by all timers together`,
          bound: { text: "none", holds: assetsLoad.pdf.length + timersLoad.pdf.length === 0 },
        },
      ],
    };
  } finally {
    await service.stop();
  }
}

/** Seconds, longer than any start. On the platform another process reads queues and timers, so here they stay idle. */
const LISTENERS_AFTER = ["--listeners-after", "600"];

async function first(options: Parameters<typeof runHost>[0], address: string, token?: string): Promise<number> {
  const started = performance.now();
  const host = await runHost({ ...options, args: LISTENERS_AFTER });
  const answer = await fetch(host.url + address, token ? { headers: bearer(token) } : {});
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${address} answered ${answer.status}`);
  const took = performance.now() - started;
  // Ends normally, so that the compiled code is stored for the next start.
  await host.stop();
  return took;
}

export const bearer = (token: string): Record<string, string> => ({ Authorization: `Bearer ${token}` });

interface Loaded {
  files: number;
  bytes: number;
  /** Names of the loaded SDKs that contain code. */
  sdks: string[];
  /** Paths of the loaded sources for PDF, including its fonts. */
  pdf: string[];
}

/** Returns a figure that passes if only these SDKs were loaded. */
export function loaded(by: string, { files, bytes, sdks }: Loaded, wanted: string[]): Figure {
  return {
    what: `SDKs loaded by ${by}`,
    value: sdks.join(", ") || "none",
    comparedWith: `${files} files of ${Math.round(bytes / 1024)} KB`,
    bound: { text: wanted.join(", ") || "none", holds: sdks.every((sdk) => wanted.includes(sdk)) },
  };
}

function size(by: string, { files, bytes }: Loaded, kilobytes: number): Figure {
  const value = Math.round(bytes / 1024);
  return {
    what: `code loaded by ${by}`,
    value: `${value} KB`,
    comparedWith: `${files} files`,
    bound: atMost(value, kilobytes, " KB"),
  };
}

/** Names of the packages that all SDKs use. They are loaded with any SDK. */
const FOUNDATIONS = /^@azure\/(?:functions|abort-controller|logger|core-)/;

const PDF = /(?:^|\/)(?:shared\/pdf\/|node_modules\/(?:pdf-lib|@pdf-lib)\/)/;

const timerAddress = (name: string): string => `/__host/timers/${name}`;

/**
 * Returns what a new process has loaded of the bundle after one request. If the address is that of a timer, the request runs
 * it.
 */
export async function loadedBy(
  service: Service,
  address: string,
  headers: Record<string, string> = {},
): Promise<Loaded> {
  return await loadedIn(service, async (url) => {
    const method = address.startsWith(timerAddress("")) ? "POST" : "GET";
    const answer = await fetch(url + address, { method, headers, redirect: "manual" });
    if (answer.status >= 400) throw new Error(`${address} answered ${answer.status}`);
  });
}

/**
 * Returns what a new process has loaded after each timer ran. Includes the work of the timers, but not that of their messages.
 */
async function loadedByTimers(service: Service): Promise<Loaded> {
  return await loadedIn(service, async (url, timers) => {
    for (const name of timers) await fetch(url + timerAddress(name), { method: "POST" });
  });
}

/** esbuild's metafile lists the contents of each file of the bundle. */
async function loadedIn(service: Service, use: (url: string, timers: string[]) => Promise<void>): Promise<Loaded> {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const chunks = new Map(Object.entries(metafile.outputs).map(([file, output]) => [path.basename(file), output]));
  const host = await service.addHost();
  const timers = host.functions.filter(({ trigger }) => trigger === "timerTrigger").map(({ name }) => name);
  await use(host.url, timers);
  const { modules } = await processFigures(host.url);
  const found = modules.flatMap((module) => chunks.get(path.basename(new URL(module).pathname)) ?? []);
  if (found.length === 0) throw new Error("The process loaded no file of the bundle");
  const sources = found.flatMap(({ inputs }) =>
    Object.entries(inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
      .map(([file]) => file),
  );
  const packages = sources.flatMap((file) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []);
  const sdks = packages.filter((name) => /^@(?:azure|aws-sdk)\//.test(name) && !FOUNDATIONS.test(name));
  return {
    files: found.length,
    bytes: found.reduce((sum, { bytes }) => sum + bytes, 0),
    sdks: [...new Set(sdks)].sort(),
    pdf: [...new Set(sources.filter((file) => PDF.test(file)))].sort(),
  };
}
