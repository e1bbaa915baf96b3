/** The service on one machine, until Ctrl-C. See HELP. */
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import { startAzurite } from "./azurite.ts";
import { configureCopies } from "./copies.ts";
import { takeDataFolder } from "./data-folders.ts";
import { readDependencies } from "./first-dependencies.ts";
import { runRotation } from "./first-rotation.ts";
import { runScan } from "./first-scan.ts";
import { configureTenant } from "./first-tenant.ts";
import { issueDevelopmentLicense, localSecrets } from "./local-secrets.ts";
import { jsonLine, type Running, start } from "./processes.ts";
import { configureSingleSignOn, type StandInProvider } from "./single-sign-on.ts";
import { whenNpmEnds } from "./starter.ts";

const HELP = `npm start -- [--azure] [--pro [--saml]] [--no-scan] [--data FOLDER]

Builds the app, brings up storage, a stand-in cloud and the functions host, runs a scan, prints what it found and goes on
serving until Ctrl-C. The next start finds its data again.

  --azure        the real cloud with your own sign-in (az login) instead of the stand-in cloud; its data is kept apart
  --pro          with a PRO licence it issues to itself, single sign-on with the stand-in cloud's identity provider,
                 copies of secrets in its other clouds, a tenant of Azure AD B2C, who uses which secret, and the rotation of
                 an application's secret
  --saml         single sign-on by SAML instead of OpenID Connect
  --no-scan      without the scan at the beginning
  --data FOLDER  where the data lies (.local), for its owner only

  PORT           the port it serves on (7071); every setting of the service in the environment is used as it is`;

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
const wantedPort = await freePort(process.env.PORT ?? "7071").catch(endWith);
const base = path.resolve(options.data);
const data = takeFolder();

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
/** Only by ending in order do the processes we started end too. */
function interrupt(): void {
  if (interrupted) process.exit(1);
  interrupted = true;
  console.log("\nEnding …");
  end().then(() => process.exit(0), endWith);
}
// SIGHUP: the terminal was closed.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);
whenNpmEnds(() => {
  if (!interrupted) interrupt();
});

try {
  const { port, cloud } = await bringUp();
  const base = `http://localhost:${port}`;
  if (!options["no-scan"]) await runScan(base, administrator());
  const protocol = options.saml ? "saml" : "oidc";
  const pro = options.pro && cloud ? await configureSingleSignOn(base, administrator(), cloud, protocol) : [];
  if (options.pro && cloud) pro.push(...(await configureCopies(base, administrator(), cloud)));
  if (options.pro && cloud) pro.push(...(await configureTenant(base, administrator(), cloud)));
  if (options.pro && cloud && !options["no-scan"]) await readDependencies(base, administrator());
  announce(port, pro);
  if (options.pro && cloud && !options["no-scan"]) runRotation(base, administrator()).catch(tell);
  const reason = await Promise.race(running.map((one) => one.ended));
  if (!interrupted) throw new Error(reason);
} catch (error) {
  if (!interrupted) {
    console.error(`\n${textOf(error)}`);
    await end();
    process.exit(1);
  }
}

async function bringUp(): Promise<{ port: number; cloud: StandInProvider | undefined }> {
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
    // The scan at the beginning is started here, unless --no-scan is given.
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
    step("Starting the stand-in cloud");
    cloud = await start(
      "The stand-in cloud",
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
  keepEnvironment(environment);
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
    // The service's own settings in our environment are used as they are.
    { environment: { ...environment, ...process.env, ...together(environment) }, isReady: jsonLine },
  );
  running.push(host);
  return { port: Number(host.ready.port), cloud: cloud?.ready as StandInProvider | undefined };
}

/** The stand-in cloud's Event Grid delivers to the queue that the service reads, as a deployment sets it up. */
async function sendEvents(controlUrl: string, connectionString: string | undefined): Promise<void> {
  if (!connectionString) return;
  const body = JSON.stringify({ connectionString, queue: "vault-events" });
  const answer = await fetch(`${controlUrl}/events`, { method: "PUT", body });
  if (!answer.ok) throw new Error(`Switching on the stand-in cloud's events answered ${answer.status}.`);
}

function endWith(error: unknown): never {
  console.error(textOf(error));
  process.exit(1);
}

/** A setting that can't be is said without the places in the code that found it. */
function textOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.includes("ConfigError") ? text.replace(/\n\s+at .*/g, "") : text;
}

function takeFolder(): string {
  try {
    return takeDataFolder(base, options.azure ? "azure" : "stand-in");
  } catch (error) {
    return endWith(error);
  }
}

/** Before anything is started; 0 asks for any. @throws {Error} when nobody can listen there. */
async function freePort(text: string): Promise<string> {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65_535) throw new Error(`PORT is a number up to 65535, not "${text}".`);
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EADDRINUSE") reject(error);
      else reject(new Error(`Port ${port} is in use. End what uses it, or set another: PORT=${port + 1} npm start`));
    });
    server.listen(port, "127.0.0.1", resolve);
  });
  const { port: found } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return String(found);
}

/** What the commands of package.json need to reach the service that was started last. */
function keepEnvironment(environment: Record<string, string | undefined>): void {
  const { NODE_OPTIONS: _, NODE_EXTRA_CA_CERTS: __, ...settings } = environment;
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
  writeFileSync(path.join(base, "service.env"), lines.join(""), { mode: 0o600 });
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

function announce(port: number, pro: string[]): void {
  const { username, password } = administrator();
  const lines = [
    `Serving at     http://localhost:${port}`,
    `Watching       ${options.azure ? "Azure, with your own sign-in (az login)" : "the stand-in cloud's company, not yours (npm start -- --azure)"}`,
    `Documentation  http://localhost:${port}/docs`,
    `Administrator  ${username} / ${process.env.BOOTSTRAP_ADMIN_PASSWORD ? "(the password in BOOTSTRAP_ADMIN_PASSWORD)" : password}`,
    ...pro,
    `Log            ${path.relative(process.cwd(), path.join(data, "host.log"))}`,
    "",
    ...(options.azure && !process.env.SERVICE_KEY_VAULT_URL
      ? ["Alert rules that post to a webhook need a key vault of the service's own: set SERVICE_KEY_VAULT_URL."]
      : []),
    `Ctrl-C ends it; the next start finds its data again in ${path.relative(process.cwd(), data)}/.`,
  ];
  console.log(`\n${lines.map((line) => (line === "" ? "" : `  ${line}`)).join("\n")}`);
}

/** What is shown besides, and is no reason to end. */
function tell(error: unknown): void {
  if (!interrupted) console.error(`\n${textOf(error)}`);
}

function step(text: string): void {
  console.log(`· ${text}`);
}
