// The command `npm start`: runs the service on this machine until Ctrl-C. See HELP.
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import { startAzurite } from "./azurite.ts";
import { openDataFolder } from "./data-folders.ts";
import { runDependencyDiscovery } from "./first-dependencies.ts";
import { runRotations } from "./first-rotation.ts";
import { runScan } from "./first-scan.ts";
import { configureCopies } from "./first-sync.ts";
import { configureTenant } from "./first-tenant.ts";
import { issueDevelopmentLicense, readOrCreateSecrets } from "./local-secrets.ts";
import { onNpmExit } from "./npm-exit.ts";
import { parseJsonLine, type RunningProcess, startProcess } from "./processes.ts";
import { configureSingleSignOn, type SimulatedProvider } from "./single-sign-on.ts";

const HELP = `npm start -- [--azure] [--pro [--saml]] [--no-scan] [--data FOLDER]

Builds the app, starts storage, a simulated cloud and the functions host, runs a scan, prints the results, and serves until
Ctrl-C. The next start uses the same data.

  --azure        use Azure instead of the simulated cloud, with separate data: with AZURE_CLIENT_SECRET if it is set, otherwise
                 with your own sign-in (az login)
  --pro          issue a PRO license, and configure single sign-on with the simulated cloud's identity provider, copies of
                 secrets in its other clouds, an Azure AD B2C tenant, a dependency discovery, and the rotation of a
                 storage account's key and of an application's secret
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
const requestedPort = await checkPort(process.env.PORT ?? "7071").catch(exitWith);
/** Folder of the option --data. */
const baseFolder = path.resolve(options.data);
/** Data folder of the selected cloud, below baseFolder. */
const dataFolder = openCloudFolder();

/** The started processes, in the order of their start. */
const running: Pick<RunningProcess, "stop" | "ended">[] = [];
let stopping: Promise<void> | undefined;
/** Stops the processes in reverse order, so that the host finishes its work before storage stops. */
const stopAll = (): Promise<void> => {
  stopping ??= (async () => {
    for (const process of running.reverse()) await process.stop();
  })();
  return stopping;
};
let interrupted = false;
/** Stops the started processes and exits. A second signal exits at once. */
function interrupt(): void {
  if (interrupted) process.exit(1);
  interrupted = true;
  console.log("\nStopping …");
  stopAll().then(() => process.exit(0), exitWith);
}
// Closing the terminal sends SIGHUP.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);
onNpmExit(() => {
  if (!interrupted) interrupt();
});

try {
  const { port, cloud } = await startProcesses();
  const serviceUrl = `http://localhost:${port}`;
  console.log(`\n  ${openLine(serviceUrl)}`);
  if (!options["no-scan"]) await runScan(serviceUrl, administrator());
  const protocol = options.saml ? "saml" : "oidc";
  const proLines =
    options.pro && cloud ? await configureSingleSignOn(serviceUrl, administrator(), cloud, protocol) : [];
  if (options.pro && cloud) proLines.push(...(await configureCopies(serviceUrl, administrator(), cloud)));
  if (options.pro && cloud) proLines.push(...(await configureTenant(serviceUrl, administrator(), cloud)));
  if (options.pro && cloud && !options["no-scan"]) await runDependencyDiscovery(serviceUrl, administrator());
  // The mails that the service sends to the simulated cloud don't leave this machine.
  if (cloud) proLines.push(`Mails          ${cloud.controlUrl}/mails/view`);
  printAddresses(port, proLines);
  if (options.pro && cloud && !options["no-scan"]) runRotations(serviceUrl, administrator()).catch(reportError);
  const reason = await Promise.race(running.map((process) => process.ended));
  if (!interrupted) throw new Error(reason);
} catch (error) {
  if (!interrupted) {
    console.error(`\n${textOf(error)}`);
    await stopAll();
    process.exit(1);
  }
}

/** Builds the app and starts storage, the simulated cloud and the functions host, in this order. */
async function startProcesses(): Promise<{ port: number; cloud: SimulatedProvider | undefined }> {
  const secrets = readOrCreateSecrets(dataFolder);
  printStep("Building the app");
  const app = path.join(dataFolder, "app");
  const { buildLocalApp } = await import("../build/build.ts");
  await buildLocalApp(app, secrets.licenseKeys);

  const environment: Record<string, string | undefined> = {
    JWT_SIGNING_KEYS: secrets.jwtSigningKeys,
    AUDIT_SIGNING_KEYS: secrets.auditSigningKeys,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    BOOTSTRAP_ADMIN_PASSWORD: secrets.adminPassword,
    PUBLIC_BASE_URL: `http://localhost:${requestedPort}`,
    // This script starts the first scan itself, unless --no-scan is given.
    FIRST_SCAN: "off",
  };
  if (options.pro) environment.LICENSE_KEY = issueDevelopmentLicense(secrets);
  if (!process.env.AzureWebJobsStorage) {
    printStep("Starting storage (Azurite)");
    const azurite = await startAzurite({ data: path.join(dataFolder, "azurite") });
    running.push(azurite);
    environment.AzureWebJobsStorage = azurite.connectionString();
  }
  let cloud: RunningProcess | undefined;
  if (!options.azure) {
    printStep("Starting the simulated cloud");
    cloud = await startProcess(
      "The simulated cloud",
      [
        process.execPath,
        path.join(root, "infra/simulated-cloud/main.ts"),
        "--data",
        path.join(dataFolder, "cloud"),
        "--ready-json",
      ],
      { environment: process.env, isReady: parseJsonLine },
    );
    running.push(cloud);
    Object.assign(environment, cloud.ready.environment);
    await enableEvents(
      String(cloud.ready.controlUrl),
      process.env.AzureWebJobsStorage ?? environment.AzureWebJobsStorage,
    );
    environment.LOG_ANALYTICS_WORKSPACE_IDS = (cloud.ready.workspaceIds as string[]).join(",");
  }
  writeServiceEnvironment(environment);
  printStep("Starting the functions host");
  const host = await startProcess(
    "The functions host",
    [
      process.execPath,
      path.join(root, "infra/functions-host/main.ts"),
      "--app",
      app,
      "--port",
      requestedPort,
      "--data",
      path.join(dataFolder, "host"),
      "--log-file",
      path.join(dataFolder, "host.log"),
      "--ready-json",
    ],
    // Settings of the service in the user's environment take precedence.
    { environment: { ...environment, ...process.env, ...combinedEnvironment(environment) }, isReady: parseJsonLine },
  );
  running.push(host);
  return { port: Number(host.ready.port), cloud: cloud?.ready as SimulatedProvider | undefined };
}

/** Lets the Event Grid of the simulated cloud deliver to the service's queue, as a deployment configures it. */
async function enableEvents(controlUrl: string, connectionString: string | undefined): Promise<void> {
  if (!connectionString) return;
  const body = JSON.stringify({ connectionString, queue: "vault-events" });
  const answer = await fetch(`${controlUrl}/events`, { method: "PUT", body });
  if (!answer.ok) throw new Error(`Enabling the simulated cloud's events returned ${answer.status}.`);
}

function exitWith(error: unknown): never {
  console.error(textOf(error));
  process.exit(1);
}

/** Returns the message of an error. For invalid settings, it removes the stack trace that the message contains. */
function textOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.includes("ConfigError") ? text.replace(/\n\s+at .*/g, "") : text;
}

/** Opens the data folder. Exits if another process uses it. */
function openCloudFolder(): string {
  try {
    return openDataFolder(baseFolder, options.azure ? "azure" : "stand-in");
  } catch (error) {
    return exitWith(error);
  }
}

/**
 * Checks that the port is free, before anything is started. Returns the port, or a free one for port 0.
 *
 * @throws {Error} If the port is invalid or in use.
 */
async function checkPort(text: string): Promise<string> {
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
  const { port: listeningPort } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return String(listeningPort);
}

/** Writes service.env: the settings with which other commands of package.json reach the service that was started last. */
function writeServiceEnvironment(environment: Record<string, string | undefined>): void {
  const { NODE_OPTIONS: _, NODE_EXTRA_CA_CERTS: __, ...settings } = environment;
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
  writeFileSync(path.join(baseFolder, "service.env"), lines.join(""), { mode: 0o600 });
}

/**
 * Returns the variables that both the user's environment and the simulated cloud set: Node options with preloads, trusted
 * certificates and proxy exceptions. Their values are combined.
 */
function combinedEnvironment(environment: Record<string, string | undefined>): Record<string, string> {
  const both = (name: string, separator: string) =>
    [environment[name], process.env[name]].filter(Boolean).join(separator);
  const combined: Record<string, string> = {};
  const nodeOptions = both("NODE_OPTIONS", " ");
  if (nodeOptions) combined.NODE_OPTIONS = nodeOptions;
  // The simulated cloud's identity provider and sync targets stay allowed next to a provider of the user's own.
  const privateTargetHosts = both("PRIVATE_TARGET_HOSTS", ",");
  if (privateTargetHosts) combined.PRIVATE_TARGET_HOSTS = privateTargetHosts;
  const [cloudCertificates, userCertificates] = [environment.NODE_EXTRA_CA_CERTS, process.env.NODE_EXTRA_CA_CERTS];
  if (cloudCertificates && userCertificates) {
    combined.NODE_EXTRA_CA_CERTS = path.join(dataFolder, "certificates.pem");
    writeFileSync(
      combined.NODE_EXTRA_CA_CERTS,
      [cloudCertificates, userCertificates].map((file) => readFileSync(file, "utf8")).join("\n"),
    );
  }
  if (!options.azure) {
    // The simulated cloud is on this machine, which a proxy can't reach.
    combined.NO_PROXY = [process.env.NO_PROXY ?? process.env.no_proxy, ".localhost", "localhost", "127.0.0.1"]
      .filter(Boolean)
      .join(",");
  }
  return combined;
}

/** Returns the credentials of the bootstrap administrator. */
function administrator(): { username: string; password: string } {
  return {
    username: process.env.BOOTSTRAP_ADMIN_USERNAME ?? "admin",
    password: process.env.BOOTSTRAP_ADMIN_PASSWORD ?? readOrCreateSecrets(dataFolder).adminPassword,
  };
}

function shownPassword(password: string): string {
  return process.env.BOOTSTRAP_ADMIN_PASSWORD ? "(the password in BOOTSTRAP_ADMIN_PASSWORD)" : password;
}

/** The next step of the user, printed before the results of the first scan and after everything else. */
function openLine(serviceUrl: string): string {
  const { username, password } = administrator();
  return `Open ${serviceUrl}/ and sign in as ${username} with the password ${shownPassword(password)}`;
}

function printAddresses(port: number, proLines: string[]): void {
  const { username, password } = administrator();
  const lines = [
    `Serving at     http://localhost:${port}`,
    `Watching       ${options.azure ? `Azure, with ${azureCredential()}` : "the simulated company. For yours: npm start -- --azure"}`,
    `Documentation  http://localhost:${port}/docs`,
    `Administrator  ${username} / ${shownPassword(password)}`,
    ...proLines,
    `Log            ${path.relative(process.cwd(), path.join(dataFolder, "host.log"))}`,
    "",
    ...(options.azure && !process.env.SERVICE_KEY_VAULT_URL
      ? ["Alert rules that post to a webhook need the service's key vault: set SERVICE_KEY_VAULT_URL."]
      : []),
    `Press Ctrl-C to stop. The next start uses the data in ${path.relative(process.cwd(), dataFolder)}/.`,
    "",
    openLine(`http://localhost:${port}`),
  ];
  console.log(`\n${lines.map((line) => (line === "" ? "" : `  ${line}`)).join("\n")}`);
}

/** Returns the credential with which the service signs in to Azure, in the order of `createIdentity`. */
function azureCredential(): string {
  const { AZURE_CLIENT_SECRET, AZURE_CLIENT_ID, IDENTITY_ENDPOINT } = process.env;
  if (AZURE_CLIENT_SECRET) return `the client secret of application ${AZURE_CLIENT_ID} (AZURE_CLIENT_SECRET)`;
  return IDENTITY_ENDPOINT ? "the managed identity of this machine" : "your own sign-in (az login)";
}

/** Prints the error of an optional step. The service continues to run. */
function reportError(error: unknown): void {
  if (!interrupted) console.error(`\n${textOf(error)}`);
}

function printStep(text: string): void {
  console.log(`· ${text}`);
}
