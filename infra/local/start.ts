/**
 * The service on one machine: builds the app, brings up storage, a stand-in cloud (or with --azure the real one) and the
 * functions host, runs a scan, prints what it found and goes on serving until Ctrl-C.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { buildApp } from "../build/build.ts";
import { startAzurite } from "./azurite.ts";
import { runScan } from "./first-scan.ts";
import { issueDevelopmentLicense, localSecrets } from "./local-secrets.ts";
import { jsonLine, type Running, start } from "./processes.ts";

const root = path.resolve(import.meta.dirname, "../..");
const { values: options } = parseArgs({
  options: {
    azure: { type: "boolean", default: false },
    pro: { type: "boolean", default: false },
    data: { type: "string", default: path.join(root, ".local") },
    "no-scan": { type: "boolean", default: false },
  },
});
const data = path.resolve(options.data);
mkdirSync(data, { recursive: true });
takeTheFolder();

const running: Pick<Running, "stop" | "ended">[] = [];
let ending: Promise<void> | undefined;
/** Last started, first ended: the host finishes its work before its storage goes. */
const end = (): Promise<void> => {
  ending ??= (async () => {
    for (const one of running.reverse()) await one.stop();
  })();
  return ending;
};
let interrupted = false;
// SIGHUP: the terminal was closed. Only by ending in order do the processes we started end too.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    if (interrupted) process.exit(1);
    interrupted = true;
    console.log("\nEnding …");
    end().then(() => process.exit(0), endWith);
  });
}

try {
  const port = await bringUp();
  if (!options["no-scan"]) await runScan(`http://127.0.0.1:${port}`, administrator());
  announce(port);
  const reason = await Promise.race(running.map((one) => one.ended));
  if (!interrupted) throw new Error(reason);
} catch (error) {
  if (!interrupted) {
    console.error(`\n${error instanceof Error ? error.message : error}`);
    await end();
    process.exit(1);
  }
}

async function bringUp(): Promise<number> {
  const secrets = localSecrets(data);
  step("Building the app");
  await buildApp({ developmentLicenseKeys: secrets.licenseKeys });

  const environment: Record<string, string | undefined> = {
    JWT_SIGNING_KEYS: secrets.jwtSigningKeys,
    AUDIT_SIGNING_KEYS: secrets.auditSigningKeys,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    BOOTSTRAP_ADMIN_PASSWORD: secrets.adminPassword,
  };
  if (options.pro) environment.LICENSE_KEY = issueDevelopmentLicense(secrets);
  if (!process.env.AzureWebJobsStorage) {
    step("Starting storage (Azurite)");
    const azurite = await startAzurite({ data: path.join(data, "azurite") });
    running.push(azurite);
    environment.AzureWebJobsStorage = azurite.connectionString();
  }
  if (!options.azure) {
    step("Starting the stand-in cloud");
    const cloud = await start(
      "The stand-in cloud",
      [
        process.execPath,
        path.join(root, "infra/local/cloud/main.ts"),
        "--data",
        path.join(data, "cloud"),
        "--ready-json",
      ],
      { environment: process.env, isReady: jsonLine },
    );
    running.push(cloud);
    Object.assign(environment, cloud.ready.environment);
  }
  keepEnvironment(environment);
  step("Starting the functions host");
  const host = await start(
    "The functions host",
    [
      ...[
        process.execPath,
        path.join(root, "infra/local/host/main.ts"),
        "--app",
        root,
        "--port",
        process.env.PORT ?? "7071",
      ],
      ...["--data", path.join(data, "host"), "--log-file", path.join(data, "host.log"), "--ready-json"],
    ],
    // The service's own settings in our environment are used as they are.
    { environment: { ...environment, ...process.env, ...together(environment) }, isReady: jsonLine },
  );
  running.push(host);
  return Number(host.ready.port);
}

function endWith(error: unknown): never {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}

/** What the commands of package.json need to reach this service, for its owner only. */
function keepEnvironment(environment: Record<string, string | undefined>): void {
  const { NODE_OPTIONS: _, NODE_EXTRA_CA_CERTS: __, ...settings } = environment;
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
  writeFileSync(path.join(data, "service.env"), lines.join(""), { mode: 0o600 });
}

/** Where the caller's environment and the stand-in cloud's both count: preloads, trusted certificates, proxy exceptions. */
function together(environment: Record<string, string | undefined>): Record<string, string> {
  const both = (name: string, separator: string) =>
    [environment[name], process.env[name]].filter(Boolean).join(separator);
  const combined: Record<string, string> = {};
  const nodeOptions = both("NODE_OPTIONS", " ");
  if (nodeOptions) combined.NODE_OPTIONS = nodeOptions;
  const [ours, theirs] = [environment.NODE_EXTRA_CA_CERTS, process.env.NODE_EXTRA_CA_CERTS];
  if (ours && theirs) {
    combined.NODE_EXTRA_CA_CERTS = path.join(data, "certificates.pem");
    writeFileSync(combined.NODE_EXTRA_CA_CERTS, [ours, theirs].map((file) => readFileSync(file, "utf8")).join("\n"));
  }
  if (!options.azure) {
    // A proxy out there knows nothing of the stand-in cloud.
    combined.NO_PROXY = [process.env.NO_PROXY ?? process.env.no_proxy, ".localhost", "localhost", "127.0.0.1"]
      .filter(Boolean)
      .join(",");
  }
  return combined;
}

function administrator(): { username: string; password: string } {
  return {
    username: process.env.BOOTSTRAP_ADMIN_USERNAME ?? "admin",
    password: process.env.BOOTSTRAP_ADMIN_PASSWORD ?? localSecrets(data).adminPassword,
  };
}

function announce(port: number): void {
  const { username, password } = administrator();
  console.log(`
  Serving at     http://localhost:${port}
  Documentation  http://localhost:${port}/docs
  Administrator  ${username} / ${process.env.BOOTSTRAP_ADMIN_PASSWORD ? "(the password in BOOTSTRAP_ADMIN_PASSWORD)" : password}
  Log            ${path.relative(process.cwd(), path.join(data, "host.log"))}

  Ctrl-C ends it; the next start finds its data again.`);
}

function step(text: string): void {
  console.log(`· ${text}`);
}

/** Two starts on one folder would write the same storage files. */
function takeTheFolder(): void {
  const file = path.join(data, "start.pid");
  const other = existsSync(file) ? Number(readFileSync(file, "utf8")) : 0;
  if (other && other !== process.pid && isAlive(other)) {
    console.error(`It is already running here (process ${other}). End it first, or give another folder with --data.`);
    process.exit(1);
  }
  writeFileSync(file, `${process.pid}`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
