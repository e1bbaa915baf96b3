/** Runs the service on this machine until Ctrl-C. See HELP. */
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import { startAzurite } from "./azurite.ts";
import { takeDataFolder } from "./data-folders.ts";
import { readDependencies } from "./first-dependencies.ts";
import { runRotation } from "./first-rotation.ts";
import { runScan } from "./first-scan.ts";
import { configureCopies } from "./first-sync.ts";
import { configureTenant } from "./first-tenant.ts";
import { issueDevelopmentLicense, localSecrets } from "./local-secrets.ts";
import { onNpmExit } from "./npm-exit.ts";
import { jsonLine, type Running, start } from "./processes.ts";
import { configureSingleSignOn, type SimulatedProvider } from "./single-sign-on.ts";

const HELP = `npm start -- [--azure] [--pro [--saml]] [--no-scan] [--data FOLDER]

Builds the app, starts storage, a simulated cloud and the functions host, runs a scan, prints the results, and serves until
Ctrl-C. The next start uses the same data.

  --azure        use Azure with your own sign-in (az login) instead of the simulated cloud, with separate data
  --pro          issue a PRO license, and configure single sign-on with the simulated cloud's identity provider, copies of
                 secrets in its other clouds, an Azure AD B2C tenant, a dependency discovery, and the rotation of an
                 application's secret
  --saml         use SAML instead of OpenID Connect for single sign-on
  --no-scan      start without a first scan
  --data FOLDER  the data folder (.local), readable only by its owner

  PORT           the port to listen on (7071). All other settings of the service in the environment are used unchanged.`;

const root = path.resolve(import.meta.dirname, "../..");
const { values: options } = commandLine(HELP, {
  options: {
    azure: { type: "boolean", default: false },
    pro: { type: "boolean", default: false },
    saml: { type: "boolean", default: false },
    data: { type: "string", default: path.join(root, ".local") },
    "no-scan": { type: "boolean", default: false },
  },
});
const wantedPort = await freePort(process.env.PORT ?? "7071").catch(exitWith);
const base = path.resolve(options.data);
const data = takeFolder();

const running: Pick<Running, "stop" | "ended">[] = [];
let ending: Promise<void> | undefined;
/** Stops the processes in reverse order, so that the host finishes its work before storage stops. */
const stopAll = (): Promise<void> => {
  ending ??= (async () => {
    for (const one of running.reverse()) await one.stop();
  })();
  return ending;
};
let interrupted = false;
/** Stops the started processes in order, so that none is left behind. A second signal ends this process at once. */
function interrupt(): void {
  if (interrupted) process.exit(1);
  interrupted = true;
  console.log("\nStopping …");
  stopAll().then(() => process.exit(0), exitWith);
}
// SIGHUP is sent when the terminal is closed.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);
onNpmExit(() => {
  if (!interrupted) interrupt();
});

try {
  const { port, cloud } = await startProcesses();
  const base = `http://localhost:${port}`;
  if (!options["no-scan"]) await runScan(base, administrator());
  const protocol = options.saml ? "saml" : "oidc";
  const pro = options.pro && cloud ? await configureSingleSignOn(base, administrator(), cloud, protocol) : [];
  if (options.pro && cloud) pro.push(...(await configureCopies(base, administrator(), cloud)));
  if (options.pro && cloud) pro.push(...(await configureTenant(base, administrator(), cloud)));
  if (options.pro && cloud && !options["no-scan"]) await readDependencies(base, administrator());
  printAddresses(port, pro);
  if (options.pro && cloud && !options["no-scan"]) runRotation(base, administrator()).catch(reportError);
  const reason = await Promise.race(running.map((one) => one.ended));
  if (!interrupted) throw new Error(reason);
} catch (error) {
  if (!interrupted) {
    console.error(`\n${textOf(error)}`);
    await stopAll();
    process.exit(1);
  }
}

async function startProcesses(): Promise<{ port: number; cloud: SimulatedProvider | undefined }> {
  const secrets = localSecrets(data);
  step("Building the app");
  const app = path.join(data, "app");
  const { buildLocalApp } = await import("../build/build.ts");
  await buildLocalApp(app, secrets.licenseKeys);

  const environment: Record<string, string | undefined> = {
    JWT_SIGNING_KEYS: secrets.jwtSigningKeys,
    AUDIT_SIGNING_KEYS: secrets.auditSigningKeys,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    BOOTSTRAP_ADMIN_PASSWORD: secrets.adminPassword,
    PUBLIC_BASE_URL: `http://localhost:${wantedPort}`,
    // This script starts the first scan itself, unless --no-scan is given.
    FIRST_SCAN: "off",
  };
  if (options.pro) environment.LICENSE_KEY = issueDevelopmentLicense(secrets);
  if (!process.env.AzureWebJobsStorage) {
    step("Starting storage (Azurite)");
    const azurite = await startAzurite({ data: path.join(data, "azurite") });
    running.push(azurite);
    environment.AzureWebJobsStorage = azurite.connectionString();
  }
  let cloud: Running | undefined;
  if (!options.azure) {
    step("Starting the simulated cloud");
    cloud = await start(
      "The simulated cloud",
      [
        process.execPath,
        path.join(root, "infra/simulated-cloud/main.ts"),
        "--data",
        path.join(data, "cloud"),
        "--ready-json",
      ],
      { environment: process.env, isReady: jsonLine },
    );
    running.push(cloud);
    Object.assign(environment, cloud.ready.environment);
    await sendEvents(
      String(cloud.ready.controlUrl),
      process.env.AzureWebJobsStorage ?? environment.AzureWebJobsStorage,
    );
    environment.LOG_ANALYTICS_WORKSPACE_IDS = (cloud.ready.workspaceIds as string[]).join(",");
  }
  writeServiceEnvironment(environment);
  step("Starting the functions host");
  const host = await start(
    "The functions host",
    [
      process.execPath,
      path.join(root, "infra/functions-host/main.ts"),
      "--app",
      app,
      "--port",
      wantedPort,
      "--data",
      path.join(data, "host"),
      "--log-file",
      path.join(data, "host.log"),
      "--ready-json",
    ],
    // Settings of the service in the user's environment take precedence.
    { environment: { ...environment, ...process.env, ...combinedEnvironment(environment) }, isReady: jsonLine },
  );
  running.push(host);
  return { port: Number(host.ready.port), cloud: cloud?.ready as SimulatedProvider | undefined };
}

/** Lets the Event Grid of the simulated cloud deliver to the service's queue, as a deployment configures it. */
async function sendEvents(controlUrl: string, connectionString: string | undefined): Promise<void> {
  if (!connectionString) return;
  const body = JSON.stringify({ connectionString, queue: "vault-events" });
  const answer = await fetch(`${controlUrl}/events`, { method: "PUT", body });
  if (!answer.ok) throw new Error(`Enabling the simulated cloud's events returned ${answer.status}.`);
}

function exitWith(error: unknown): never {
  console.error(textOf(error));
  process.exit(1);
}

/** Returns the message of an error. Invalid settings are reported without a stack trace. */
function textOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.includes("ConfigError") ? text.replace(/\n\s+at .*/g, "") : text;
}

function takeFolder(): string {
  try {
    return takeDataFolder(base, options.azure ? "azure" : "stand-in");
  } catch (error) {
    return exitWith(error);
  }
}

/**
 * Checks that the port is free before anything is started. Port 0 selects any free port.
 *
 * @throws {Error} If the port is invalid or in use.
 */
async function freePort(text: string): Promise<string> {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65_535) throw new Error(`PORT must be a number from 0 to 65535, not "${text}".`);
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EADDRINUSE") reject(error);
      else
        reject(
          new Error(
            `Port ${port} is in use. Stop the program that uses it, or set another port: PORT=${port + 1} npm start`,
          ),
        );
    });
    server.listen(port, "127.0.0.1", resolve);
  });
  const { port: found } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return String(found);
}

/** Writes the settings that the commands of package.json need to reach the service that was started last. */
function writeServiceEnvironment(environment: Record<string, string | undefined>): void {
  const { NODE_OPTIONS: _, NODE_EXTRA_CA_CERTS: __, ...settings } = environment;
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
  writeFileSync(path.join(base, "service.env"), lines.join(""), { mode: 0o600 });
}

/**
 * Combines variables of the user's environment and of the simulated cloud: preloads, trusted certificates and proxy exceptions.
 */
function combinedEnvironment(environment: Record<string, string | undefined>): Record<string, string> {
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
    // A proxy can't reach the simulated cloud.
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

function printAddresses(port: number, pro: string[]): void {
  const { username, password } = administrator();
  const lines = [
    `Serving at     http://localhost:${port}`,
    `Watching       ${options.azure ? "Azure, with your own sign-in (az login)" : "the simulated company. For yours: npm start -- --azure"}`,
    `Documentation  http://localhost:${port}/docs`,
    `Administrator  ${username} / ${process.env.BOOTSTRAP_ADMIN_PASSWORD ? "(the password in BOOTSTRAP_ADMIN_PASSWORD)" : password}`,
    ...pro,
    `Log            ${path.relative(process.cwd(), path.join(data, "host.log"))}`,
    "",
    ...(options.azure && !process.env.SERVICE_KEY_VAULT_URL
      ? ["Alert rules that post to a webhook need the service's key vault: set SERVICE_KEY_VAULT_URL."]
      : []),
    `Press Ctrl-C to stop. The next start uses the data in ${path.relative(process.cwd(), data)}/.`,
  ];
  console.log(`\n${lines.map((line) => (line === "" ? "" : `  ${line}`)).join("\n")}`);
}

/** Prints the error of an optional step. The service continues to run. */
function reportError(error: unknown): void {
  if (!interrupted) console.error(`\n${textOf(error)}`);
}

function step(text: string): void {
  console.log(`· ${text}`);
}
