import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { freePort } from "functions-host/test/run-host.ts";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { openStorage } from "../support/storage.ts";
import { endStartedProcesses, npmStart, root } from "./npm-start.ts";

// Tests of `npm start`, which runs the service with a simulated cloud, or with `--azure` against Azure.

afterEach(endStartedProcesses);

/** The administrator's password in the data that an earlier version wrote. */
const EXISTING_PASSWORD = "kept-from-before";

/** Returns every file and folder under a folder that other users can access. */
function accessibleToOthers(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => {
    const stats = lstatSync(path.join(folder, name));
    return (stats.isFile() || stats.isDirectory()) && (stats.mode & 0o077) !== 0;
  });
}

/** Runs the timer that starts the first scan, and returns the list of scans, which is empty with `--no-scan`. */
async function scansAfterTimer(port: number, log: string): Promise<unknown[]> {
  const base = `http://127.0.0.1:${port}`;
  const json = { "Content-Type": "application/json" };
  await fetch(`${base}/admin/functions/watchScans`, { method: "POST", headers: json, body: "{}" });
  await expect.poll(() => readFileSync(log, "utf8")).toContain("Executed 'Functions.watchScans' (Succeeded");
  const body = JSON.stringify({ username: "admin", password: EXISTING_PASSWORD });
  const signedIn = await fetch(`${base}/auth/login`, { method: "POST", headers: json, body });
  const { access_token: token } = (await signedIn.json()) as { access_token: string };
  const scans = await fetch(`${base}/api/assets/discovery/scans`, { headers: { Authorization: `Bearer ${token}` } });
  return ((await scans.json()) as { items: unknown[] }).items;
}

/** Returns the names and modification times of a folder's files, to notice changes. */
const listFiles = (folder: string): string[] =>
  existsSync(folder) ? readdirSync(folder).map((name) => `${name} ${statSync(path.join(folder, name)).mtimeMs}`) : [];

test("npm start uses the data of an earlier version, keeps it private to its owner, and ends when npm is killed", async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  // The folder layout and file of an earlier version, whose file other users could read.
  mkdirSync(path.join(data, "cloud"));
  const secrets = { adminPassword: EXISTING_PASSWORD, jwtSigningKeys: `local:${"A".repeat(44)}`, licenseKeys: [] };
  const auditSigningKeys = `local:${Buffer.alloc(32, 1).toString("base64")}`;
  writeFileSync(path.join(data, "secrets.json"), JSON.stringify({ ...secrets, auditSigningKeys }), { mode: 0o644 });
  const distBefore = listFiles(path.join(root, "dist"));
  const port = await freePort();
  const npm = spawn("npm", ["start", "--", "--no-scan", "--data", data], {
    cwd: root,
    detached: true,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PORT: String(port) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const lines: string[] = [];
    createInterface({ input: npm.stdout }).on("line", (line) => lines.push(line));
    // The pipe closes when the last process that npm started has ended.
    let closed = false;
    npm.stdout.once("close", () => {
      closed = true;
    });
    await expect.poll(() => closed || lines.some((line) => line.includes("Press Ctrl-C to stop"))).toBe(true);
    expect(lines.join("\n")).toContain("the simulated company. For yours");
    expect(lines.join("\n")).toContain(EXISTING_PASSWORD);
    expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(200);
    // The next step is the first and the last line about the running service, and a browser can open each printed address.
    const openLine = `Open http://localhost:${port}/ and sign in as admin`;
    const openLines = () => lines.flatMap((line, index) => (line.includes(openLine) ? [index] : []));
    await expect.poll(openLines).toHaveLength(2);
    const [first, last] = openLines();
    expect(first).toBeLessThan(lines.findIndex((line) => line.includes("Serving at")));
    expect(lines.slice(last! + 1).filter((line) => line.trim() !== "")).toEqual([]);
    for (const address of lines.join("\n").match(/http:\/\/[^\s)]+/g)!)
      expect([address, (await fetch(address)).status]).toEqual([address, 200]);
    // `stand-in` is the folder for runs with the simulated cloud. Runs with `--azure` use the folder `azure`.
    expect(await scansAfterTimer(port, path.join(data, "stand-in/host.log"))).toEqual([]);

    expect(readdirSync(path.join(data, "stand-in"))).toEqual(
      expect.arrayContaining(["app", "azurite", "cloud", "host.log", "secrets.json"]),
    );
    expect(existsSync(path.join(data, "secrets.json"))).toBe(false);
    expect(statSync(data).mode & 0o777).toBe(0o700);
    expect(accessibleToOthers(data)).toEqual([]);
    expect(listFiles(path.join(root, "dist"))).toEqual(distBefore);
    expect(JSON.parse(readFileSync(path.join(data, "stand-in/app/package.json"), "utf8")).main).toBe("dist/main.mjs");

    const second = npmStart(data, ["--no-scan"], { PORT: String(await freePort()) });
    expect(await second.exited).toBe(1);
    expect(second.lines).toEqual([
      expect.stringMatching(/^The service is already running with the data folder .* \(process \d+\)/),
    ]);

    // SIGKILL ends only npm itself. The other processes must notice that npm has ended.
    npm.kill("SIGKILL");
    await expect.poll(() => closed).toBe(true);
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow("fetch failed");
  } finally {
    endGroup(npm.pid!);
  }
});

test("npm start -- --pro prints where to sign in and find tenants and mails, and allows private hosts in addition to those of the simulated cloud", async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const [port, ownPort] = [await freePort(), await freePort()];
  const environment = { PORT: String(port), PRIVATE_TARGET_HOSTS: `127.0.0.1:${ownPort}` };
  // Configures the identity provider and the sync targets of the simulated cloud, which are at private addresses.
  const { ready, lines } = npmStart(data, ["--pro", "--no-scan"], environment);
  await ready;
  const printed = lines.join("\n");
  expect(printed).toMatch(
    /Single sign-on http:\/\/localhost:\d+\/auth\/sso\/login\S* {2}\(OIDC; npm start -- --pro --saml: SAML\)/,
  );
  expect(printed).toMatch(/People {2,}\S.* \(Lifecycle\.Admin\)/);
  expect(printed).toMatch(/Tenants {2,}http:\/\/localhost:\d+\/#\/b2c {2}\(.+: \d+ credentials\)/);
  expect(printed).toMatch(/Mails {2,}http:\/\/\S+\/mails\/view/);
  // The sign-in redirects to the identity provider, which needs a browser.
  for (const address of printed.match(/http:\/\/[^\s)]+/g)!)
    expect([address, (await fetch(address, { redirect: "manual" })).status]).toEqual([
      address,
      address.includes("/auth/sso/login") ? 302 : 200,
    ]);
  const { adminPassword } = JSON.parse(readFileSync(path.join(data, "stand-in/secrets.json"), "utf8"));
  const post = async (route: string, body: object, headers: Record<string, string> = {}) => {
    const init = {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    };
    return await (await fetch(`http://localhost:${port}${route}`, init)).json();
  };
  const { access_token: token } = await post("/auth/login", { username: "admin", password: adminPassword });
  const detailOf = async (ownOrOtherPort: number) => {
    const issuer = { oidcIssuer: `https://127.0.0.1:${ownOrOtherPort}`, oidcClientId: "lifecycle" };
    return JSON.stringify(await post("/auth/sso/config/test", issuer, { authorization: `Bearer ${token}` }));
  };
  expect(await detailOf(ownPort)).not.toMatch(/PRIVATE_TARGET_HOSTS/);
  expect(await detailOf(await freePort())).toMatch(/PRIVATE_TARGET_HOSTS/);
});

test("data of Azure and of the simulated cloud is in separate folders", async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  mkdirSync(path.join(data, "cloud"));
  mkdirSync(path.join(data, "azurite"));
  const { ready, lines } = npmStart(data, ["--azure", "--no-scan"], { PORT: String(await freePort()) });
  await ready;
  expect(lines.join("\n")).toContain("Azure, with your own sign-in");
  expect(lines.join("\n")).toContain("SERVICE_KEY_VAULT_URL");
  // `npm start --azure` leaves the data of the simulated cloud where it was.
  expect(existsSync(path.join(data, "cloud"))).toBe(true);
  expect(readdirSync(path.join(data, "azure"))).not.toContain("cloud");
});

test("npm start --azure names the client secret in the environment as its credential", async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const id = "11111111-1111-4111-8111-111111111111";
  const client = { AZURE_TENANT_ID: id, AZURE_CLIENT_ID: id, AZURE_CLIENT_SECRET: "sample-client-secret" };
  const { ready, lines } = npmStart(data, ["--azure", "--no-scan"], { PORT: String(await freePort()), ...client });
  await ready;
  expect(lines.join("\n")).toContain(`Azure, with the client secret of application ${id} (AZURE_CLIENT_SECRET)`);
  expect(lines.join("\n")).not.toMatch(/az login|sample-client-secret/);
});

test.each([
  [
    "a port in use",
    async () => String(await listenOnFreePort()),
    /^Port \d+ is in use\. Stop the program that uses it, or set another port: PORT=\d+ npm start$/,
  ],
  ["an invalid port", async () => "http", /^PORT must be a number from 0 to 65535, not "http"\.$/],
])("%s stops npm start with one line that describes the fix", async (_, port, line) => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const { exited, lines } = npmStart(data, [], { PORT: await port() });
  expect(await exited).toBe(1);
  expect(lines).toEqual([expect.stringMatching(line)]);
  expect(readdirSync(data)).toEqual([]);
});

test("an invalid setting stops npm start with a description and without a stack trace", async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const storage = await openStorage();
  onTestFinished(() => storage.stop());
  const environment = {
    PORT: String(await freePort()),
    RATE_LIMIT_PER_MINUTE: "abc",
    AzureWebJobsStorage: storage.connectionString(),
  };
  const { exited, lines } = npmStart(data, ["--azure", "--no-scan"], environment);
  expect(await exited).toBe(1);
  expect(lines.join("\n")).toContain("RATE_LIMIT_PER_MINUTE: must be a whole number");
  expect(lines.filter((line) => /^\s+at /.test(line))).toEqual([]);
});

/** Ends the remaining processes of a process group. */
function endGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGTERM");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Opens a server on a free port and returns the port. */
async function listenOnFreePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  return (server.address() as { port: number }).port;
}
