import { execFile, execFileSync } from "node:child_process";
import { createPublicKey } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EARLIER_BUILDS } from "../../shared/store/rollback-losses.ts";
import { licence, licensePrivateKey } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers } from "../support/users.ts";

// Runs the last landed builds on a store that the current one wrote and prepared for them. The builds are made from the
// repository's own history, with the current packages.

const ROOT = path.resolve(import.meta.dirname, "../..");
const OPERATOR = { username: "olga", password: "quiet-library-window", role: "operator" as const };
/** Lists whose rows the current build wrote. */
const LISTS = [
  "/api/assets/discovery/assets",
  "/api/assets/discovery/vaults",
  "/api/assets/discovery/scans",
  "/subscriptions",
  "/compliance/violations",
  "/alerts/rules",
  "/alerts/history",
  "/alerts/snoozes",
  "/audit/entries",
  "/auth/users",
  "/auth/tokens",
  "/api/settings/features",
  "/api/automation/rotation/history",
  "/api/automation/sync/records",
  "/system/reconciliation",
];

/** Builds a commit without the page, which is not tested here. Returns the folder of the app that a functions host can run. */
function buildCommit(commit: string, folder: string): string {
  const [source, app, archive] = ["source", "app", "source.tar"].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(source);
  const parts = ["functions", "infra", "shared", "host.json", "package.json", "tsconfig.json"];
  execFileSync("git", ["archive", "--output", archive, commit, ...parts], { cwd: ROOT });
  execFileSync("tar", ["-xf", archive, "-C", source]);
  symlinkSync(path.join(ROOT, "node_modules"), path.join(source, "node_modules"));
  writeFileSync(path.join(source, "infra/build/page.ts"), "export const buildPage = async () => [];\n");
  const key = { kid: "test", x: createPublicKey(licensePrivateKey()).export({ format: "jwk" }).x };
  const build = pathToFileURL(path.join(source, "infra/build/build.ts")).href;
  const script = `const { buildLocalApp } = await import(${JSON.stringify(build)});
    await buildLocalApp(${JSON.stringify(app)}, ${JSON.stringify([key])});`;
  execFileSync(process.execPath, ["--input-type=module", "--eval", script], {
    cwd: source,
    env: { PATH: process.env.PATH },
  });
  return app;
}

describe.skipIf(skipWithout("history")).each(EARLIER_BUILDS)("the build %s on a store of the current one", (commit) => {
  const folder = mkdtempSync(path.join(tmpdir(), "rollback-"));
  let service: Service;
  let app: string;
  let host: RunningHost;
  let token: string;

  // `--inspect-modules` also adds the route that runs a timer.
  const startEarlierHost = () =>
    runHost({ app, env: service.environment, args: ["--no-schedules", "--inspect-modules"] });
  const send = async (method: string, route: string, body?: object) => {
    const answer = await fetch(host.url + route, {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
    return { status: answer.status, body: (await answer.json()) as any };
  };
  const signIn = async ({ username, password }: { username: string; password: string }): Promise<string> => {
    const { status, body } = await send("POST", "/auth/login", { username, password });
    expect([username, status]).toEqual([username, 200]);
    return body.access_token;
  };
  const runTimer = async (url: string, name: string) => {
    const answer = await fetch(`${url}/__host/timers/${name}`, { method: "POST" });
    return ((await answer.json()) as { succeeded: boolean }).succeeded;
  };
  /** Runs a command of the current build. Not synchronously, because the simulated cloud answers in this process. */
  const runCommand = async (...args: string[]): Promise<string> => {
    const env = { ...service.environment, PATH: process.env.PATH, NODE_COMPILE_CACHE: COMPILE_CACHE };
    return (await promisify(execFile)(process.execPath, [COMMANDS.store, ...args], { env })).stdout;
  };

  beforeAll(async () => {
    app = buildCommit(commit, folder);
    const company = {
      subscriptions: [
        {
          name: "Shop",
          vaults: [{ name: "kv-shop", secrets: [{ name: "old", expiresInDays: 5.5 }] }, { name: "kv-other" }],
        },
      ],
    };
    service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
    await createUsers(service, [OPERATOR]);
    await service.scan();
    for (const [name, alertType, rest] of [
      ["Expiring", "expiration", { thresholds: [30] }],
      ["Unreadable rows", "rowUnreadable", {}],
    ] as const) {
      const rule = { name, alertType, recipients: ["team@acme.example"], ...rest };
      expect((await service.admin("POST", "/alerts/rules", rule)).status).toBe(201);
    }
    expect(await runTimer(service.url, "evaluateAlerts")).toBe(true);
    expect(await runTimer(service.url, "startReconciliation")).toBe(true);
    await service.waitUntilIdle();
    // This timer also checks the signed rows. Its first run ends the time in which rows without a signature are accepted.
    expect(await runTimer(service.url, "watchScans")).toBe(true);
    await service.hosts[0]!.stop("SIGKILL");
  }, 300_000);
  afterAll(async () => {
    await host?.stop("SIGKILL");
    await service?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** The build f8ec7568 does not sign the rows that it writes. */
  const signsRows = commit !== "f8ec7568";
  if (signsRows)
    test("writes rows that the current build accepts also if the store is not prepared", {
      timeout: 300_000,
    }, async () => {
      host = await startEarlierHost();
      token = await signIn(ADMIN);
      await host.stop("SIGKILL");

      host = await service.addHost();
      token = await signIn(ADMIN);
      expect((await send("GET", "/auth/users")).body.unreadableRows).toBeUndefined();
      await host.stop("SIGKILL");
    });
  else
    test("writes rows that the current build rejects if the store is not prepared, until an administrator accepts them", {
      timeout: 300_000,
    }, async () => {
      host = await startEarlierHost();
      token = await signIn(ADMIN);
      await host.stop("SIGKILL");

      host = await service.addHost();
      const rejected = await send("POST", "/auth/login", ADMIN);
      expect([rejected.status, rejected.body.code]).toEqual([503, "rowUnreadable"]);
      expect(rejected.body.detail).toContain("npm run store -- sign");
      await host.stop("SIGKILL");
      expect(await runCommand("sign")).toContain(`Users/user/${ADMIN.username}\tunsigned`);
      expect(await runCommand("sign", "--accept")).toContain("signed all rows again");
      host = await service.addHost();
      token = await signIn(ADMIN);
      expect((await send("GET", "/auth/users")).body.unreadableRows).toBeUndefined();
      await host.stop("SIGKILL");
    });

  test("works after the preparation: sign-in, lists, scans and alerts", { timeout: 300_000 }, async () => {
    expect(await runCommand("prepare-rollback", "--to", commit)).toContain(`The store is prepared for ${commit}.`);
    host = await startEarlierHost();
    await signIn(OPERATOR);
    token = await signIn(ADMIN);
    const statuses = await Promise.all(LISTS.map(async (route) => [route, (await send("GET", route)).status]));
    expect(statuses).toEqual(LISTS.map((route) => [route, 200]));

    service.cloud.control.putSecret("kv-other", { name: "new", value: "x", expiresInDays: 4.5 });
    const { body } = await send("POST", "/api/assets/discovery/scan", { mode: "full" });
    const statusOfScan = async () =>
      (await send("GET", `/api/assets/discovery/scan/${body.scanId}/status`)).body.status;
    await expect.poll(statusOfScan, { timeout: 150_000, interval: 300 }).toBe("completed");
    expect(
      (await send("GET", "/api/assets/discovery/assets")).body.items.map(({ name }: { name: string }) => name),
    ).toEqual(["new", "old"]);
    const mails = service.cloud.control.mails().length;
    expect(await runTimer(host.url, "evaluateAlerts")).toBe(true);
    await expect.poll(() => service.cloud.control.mails().length, { timeout: 60_000 }).toBe(mails + 1);
    expect(JSON.stringify(service.cloud.control.mails().at(-1))).toContain("kv-other");
    expect((await send("GET", "/audit/verify")).body).toMatchObject({ intact: true });
    expect(await runTimer(host.url, "sealAudit")).toBe(true);
    await host.stop("SIGKILL");

    // The current build on the store that the earlier build has written since.
    host = await service.addHost();
    token = await signIn(ADMIN);
    expect((await send("GET", "/audit/verify")).body).toMatchObject({ intact: true });
    expect((await send("GET", "/api/assets/discovery/assets")).body.total).toBe(2);
    expect(await runTimer(host.url, "evaluateAlerts")).toBe(true);
  });
});
