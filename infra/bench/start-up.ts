import { readFileSync } from "node:fs";
import path from "node:path";
import { runHost } from "functions-host/test/run-host.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { TEST_APP } from "../../test/support/test-app.ts";
import type { BuiltApp } from "../build/build.ts";
import { processFigures } from "./process.ts";
import { atMost, type Figure, ratio, type Section } from "./section.ts";

/** Number of starts of each app. The shortest time counts. */
const RUNS = Number(process.env.START_UP_RUNS ?? 9);

/**
 * Benchmark `startUp`: measures the time from the start of the functions host to the first response, compared with an app that
 * has one empty function. Also lists the SDKs and the amount of code that a new process loads for a request or a timer.
 */
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
        await timeFirstResponse(
          { app: path.resolve(import.meta.dirname, "empty-app"), env: service.environment },
          "/health",
        ),
      );
      health.push(await timeFirstResponse({ app: TEST_APP, env: service.environment }, "/health"));
      assets.push(
        await timeFirstResponse({ app: TEST_APP, env: service.environment }, "/api/assets/discovery/assets", token),
      );
    }
    const loadedByHealth = await loadedBy(service, "/health");
    const loadedByAssetList = await loadedBy(service, "/api/assets/discovery/assets", bearer(token));
    const loadedByAllTimers = await loadedByTimers(service);
    const emptyAppMs = Math.min(...empty);
    return {
      title: "Start-up of the built app",
      how: `Time from starting the functions host to the first answer: the shortest of ${RUNS}, in turns, with a warm compile cache. Queues and timers are off, because the platform runs them in another process. The loaded SDKs follow from esbuild's description of the bundle. App Configuration is configured.`,
      figures: [
        { what: "empty app, first answer", value: `${Math.round(emptyAppMs)} ms`, comparedWith: "" },
        {
          what: "first /health",
          value: `${Math.round(Math.min(...health))} ms, ${ratio(Math.min(...health), emptyAppMs)}`,
          comparedWith: "the empty app",
          bound: atMost(Math.min(...health) / emptyAppMs, 1.5),
        },
        {
          what: "first authenticated asset list",
          value: `${Math.round(Math.min(...assets))} ms, ${ratio(Math.min(...assets), emptyAppMs)}`,
          comparedWith: "the empty app",
          bound: atMost(Math.min(...assets) / emptyAppMs, 4),
        },
        sdksFigure("/health", loadedByHealth, []),
        sizeFigure("/health", loadedByHealth, 450),
        sdksFigure("an asset list", loadedByAssetList, ["@azure/app-configuration", ...SDKS_OF_SIGNED_ROWS]),
        sizeFigure("an asset list", loadedByAssetList, 3_800),
        sdksFigure("watchScans, each minute", await loadedBy(service, timerAddress("watchScans")), SDKS_OF_SIGNED_ROWS),
        {
          what: "files for PDF and fonts loaded by an asset list and by every timer",
          value: [...loadedByAssetList.pdf, ...loadedByAllTimers.pdf].join(", ") || "none",
          comparedWith: `${loadedByAllTimers.files} files of ${Math.round(loadedByAllTimers.bytes / 1024)} KB by all timers together`,
          bound: { text: "none", holds: loadedByAssetList.pdf.length + loadedByAllTimers.pdf.length === 0 },
        },
      ],
    };
  } finally {
    await service.stop();
  }
}

/**
 * SDKs that read a signed row, such as the row of the user who calls. One SDK reads the row from a table, the other reads the
 * key of its signature from the service's own key vault.
 */
export const SDKS_OF_SIGNED_ROWS = [
  "@azure/data-tables",
  "@azure/identity",
  "@azure/keyvault-common",
  "@azure/keyvault-secrets",
  "@azure/msal-common",
  "@azure/msal-node",
];

/**
 * Starts queues and timers only after 600 seconds, which is longer than a measurement. On the platform another process reads
 * queues and timers, so they must not slow the start here.
 */
const LISTENERS_AFTER = ["--listeners-after", "600"];

/** Starts a host and returns the milliseconds until it has answered a GET request. */
async function timeFirstResponse(
  options: Parameters<typeof runHost>[0],
  address: string,
  token?: string,
): Promise<number> {
  const started = performance.now();
  const host = await runHost({ ...options, args: LISTENERS_AFTER });
  const response = await fetch(host.url + address, token ? { headers: bearer(token) } : {});
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`${address} answered ${response.status}`);
  const durationMs = performance.now() - started;
  // Ends normally, so that the compiled code is stored for the next start.
  await host.stop();
  return durationMs;
}

/** Returns the Authorization header for a token. */
export const bearer = (token: string): Record<string, string> => ({ Authorization: `Bearer ${token}` });

/** The part of the built app that a process has loaded. */
interface LoadedCode {
  files: number;
  bytes: number;
  /** Names of the loaded SDKs that contain code. */
  sdks: string[];
  /** Paths of the loaded sources for PDF, including its fonts. */
  pdf: string[];
}

/** Returns the row with the loaded SDKs. Its bound is exceeded if an SDK is loaded that is not in `allowed`. */
export function sdksFigure(by: string, { files, bytes, sdks }: LoadedCode, allowed: string[]): Figure {
  return {
    what: `SDKs loaded by ${by}`,
    value: sdks.join(", ") || "none",
    comparedWith: `${files} files of ${Math.round(bytes / 1024)} KB`,
    bound: { text: allowed.join(", ") || "none", holds: sdks.every((sdk) => allowed.includes(sdk)) },
  };
}

function sizeFigure(by: string, { files, bytes }: LoadedCode, limitKb: number): Figure {
  const loadedKb = Math.round(bytes / 1024);
  return {
    what: `code loaded by ${by}`,
    value: `${loadedKb} KB`,
    comparedWith: `${files} files`,
    bound: atMost(loadedKb, limitKb, " KB"),
  };
}

/** Matches packages that are not SDKs of a service: the Functions library and packages that all Azure SDKs load. */
const SHARED_PACKAGES = /^@azure\/(?:functions|abort-controller|logger|core-)/;

/** Matches the sources that generate PDF files, such as `shared/platform/pdf/sheet.ts` and `node_modules/pdf-lib/…`. */
const PDF_SOURCES = /(?:^|\/)(?:shared\/platform\/pdf\/|node_modules\/(?:pdf-lib|@pdf-lib)\/)/;

const timerAddress = (name: string): string => `/__host/timers/${name}`;

/**
 * Starts a new process, sends one request, and returns what the process has loaded of the bundle (the built app). If the
 * address is that of a timer, the request runs the timer.
 */
export async function loadedBy(
  service: Service,
  address: string,
  headers: Record<string, string> = {},
): Promise<LoadedCode> {
  return await loadedIn(service, async (url) => {
    const method = address.startsWith(timerAddress("")) ? "POST" : "GET";
    const response = await fetch(url + address, { method, headers, redirect: "manual" });
    if (response.status >= 400) throw new Error(`${address} answered ${response.status}`);
  });
}

/** Runs all timers in a new process and returns what they have loaded. Their queue messages are not awaited. */
async function loadedByTimers(service: Service): Promise<LoadedCode> {
  return await loadedIn(service, async (url, timers) => {
    for (const name of timers) await fetch(url + timerAddress(name), { method: "POST" });
  });
}

/**
 * Returns what a new process has loaded after `use`. esbuild's metafile tells which sources are in each loaded file of the
 * bundle.
 */
async function loadedIn(service: Service, use: (url: string, timers: string[]) => Promise<void>): Promise<LoadedCode> {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const bundleFiles = new Map(Object.entries(metafile.outputs).map(([file, output]) => [path.basename(file), output]));
  const host = await service.addHost();
  const timers = host.functions.filter(({ trigger }) => trigger === "timerTrigger").map(({ name }) => name);
  await use(host.url, timers);
  const { modules } = await processFigures(host.url);
  const loadedFiles = modules.flatMap((module) => bundleFiles.get(path.basename(new URL(module).pathname)) ?? []);
  if (loadedFiles.length === 0) throw new Error("The process loaded no file of the bundle");
  const sources = loadedFiles.flatMap(({ inputs }) =>
    Object.entries(inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
      .map(([file]) => file),
  );
  // A nested package such as `node_modules/a/node_modules/@azure/b/index.js` counts as `@azure/b`.
  const packages = sources.flatMap((file) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []);
  const sdks = packages.filter((name) => /^@(?:azure|aws-sdk)\//.test(name) && !SHARED_PACKAGES.test(name));
  return {
    files: loadedFiles.length,
    bytes: loadedFiles.reduce((sum, { bytes }) => sum + bytes, 0),
    sdks: [...new Set(sdks)].sort(),
    pdf: [...new Set(sources.filter((file) => PDF_SOURCES.test(file)))].sort(),
  };
}
