import { execFile } from "node:child_process";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { createWholeTables } from "../../shared/platform/storage/whole-tables.ts";
import { prepareRollback } from "../../shared/store/prepare-rollback.ts";
import { EARLIER_BUILDS, type EarlierBuild } from "../../shared/store/rollback-losses.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";

// The preparation of a store for an earlier build, once by the command itself. rollback.test.ts runs the builds themselves.

const JWT_SIGNING_KEYS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;
const CALLER = { actor: "system", requestId: "test" } as const;
const [NEWEST] = EARLIER_BUILDS;
const OLDEST = EARLIER_BUILDS.at(-1)!;
/** Number of newer builds. */
const age = (build: EarlierBuild): number => EARLIER_BUILDS.indexOf(build);

/**
 * Rows with content that earlier builds ignore, and a part of the reported line. `upTo` is the newest build that ignores the
 * content: all older builds ignore it too.
 */
const IGNORED: { table: string; columns: Record<string, string>; upTo: EarlierBuild; line: string }[] = [
  {
    table: "KeyRotations",
    columns: { status: "waiting" },
    upTo: NEWEST,
    line: "Rotations of vault keys that have not ended: 1.",
  },
  {
    table: "CertificateRenewals",
    columns: { runId: "01J00000000000000000000000", assetId: "kv-one.certificate.one" },
    upTo: "b545d8e2",
    line: "Renewals of certificates that have not ended: 1.",
  },
  {
    table: "Rotations",
    columns: { loginId: "db-1", status: "overlapping" },
    upTo: NEWEST,
    line: "Rotations of logins of databases that have not ended: 1.",
  },
  {
    table: "Proposals",
    columns: { state: "pending" },
    upTo: NEWEST,
    line: "Proposed changes that wait for a person: 1.",
  },
  {
    table: "AlertRules",
    columns: { alertType: "staleEndpoint" },
    upTo: NEWEST,
    line: "Alert rules of the type staleEndpoint: 1.",
  },
  {
    table: "AlertRules",
    columns: { alertType: "auditStreamFailing" },
    upTo: NEWEST,
    line: "Alert rules of the type auditStreamFailing: 1.",
  },
  {
    table: "AuditStreams",
    columns: { destination: "webhook" },
    upTo: NEWEST,
    line: "Audit streams: 1.",
  },
  {
    table: "RotationPolicies",
    columns: { maintenanceWindow_json: "{}" },
    upTo: "7af1c37d",
    line: "Rotation policies with a maintenance window: 1.",
  },
  {
    table: "Rotations",
    columns: { maintenanceWindow_json: "{}", status: "waiting" },
    upTo: "7af1c37d",
    line: "Rotations that wait for a maintenance window: 1.",
  },
  {
    table: "Assets",
    columns: { renewal_json: "{}" },
    upTo: "fc16f64b",
    line: "Rows of certificates with a renewal plan: 1.",
  },
  {
    table: "AlertRules",
    columns: { alertType: "lateRenewal" },
    upTo: "fc16f64b",
    line: "Alert rules of the type lateRenewal: 1.",
  },
  {
    table: "Rotations",
    columns: { issuer: "resourceKey", status: "overlapping" },
    upTo: "fc16f64b",
    line: "Rotations of keys of Azure resources that have not ended: 1.",
  },
  { table: "IdempotencyKeys", columns: { state: "completed" }, upTo: "6da79ba2", line: "Idempotency keys: 1." },
  // The row which remembers that the first administrator's password was set (`BootstrapMarker`).
  {
    table: "Users",
    columns: { exchangedAt: "2026-11-27" },
    upTo: "6da79ba2",
    line: "The marker of the first password.",
  },
  { table: "Users", columns: { _signature: "k.mac" }, upTo: OLDEST, line: "Signed rows of users: 1." },
  {
    table: "Settings",
    columns: { overrides_json: '{"requireStepUp":{"value":true,"updatedBy":"maria"}}' },
    upTo: OLDEST,
    line: "The override of requireStepUp has no effect",
  },
  {
    table: "Settings",
    columns: {
      overrides_json: '{"requireStepUp":{"value":false},"requireApproval":{"updatedBy":"maria","value":true}}',
    },
    upTo: OLDEST,
    line: "The override of requireApproval has no effect",
  },
];

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["ignored", "command"]);
  for (const account of ["ignored", "command"]) {
    for (const [index, { table, columns }] of IGNORED.entries()) {
      async function* rows() {
        yield { partitionKey: "ignored", rowKey: String(index), etag: "", columns };
      }
      await wholeTables(account).write(table, rows());
    }
  }
});
afterAll(() => storage.stop());

const wholeTables = (account: string) => createWholeTables({ connectionString: storage.connectionString(account) });

/** Returns every row of the tables of `IGNORED` with its columns. */
async function readAllRows(account: string): Promise<string[]> {
  const rows: string[] = [];
  for (const table of new Set(IGNORED.map((ignored) => ignored.table)))
    for await (const { etag: _, ...row } of wholeTables(account).rows(table)) rows.push(JSON.stringify([table, row]));
  return rows;
}

/** Prepares the store of the account `ignored`. Returns the reported lines and the audit events. */
async function prepare(to: string, { dryRun = false } = {}) {
  const lines: string[] = [];
  const events: AuditEvent[] = [];
  const deps = {
    wholeTables: wholeTables("ignored"),
    tables: createTables({ connectionString: storage.connectionString("ignored") }),
    audit: { append: async (event: AuditEvent) => void events.push(event), prepareForRollback: async () => {} },
  };
  await prepareRollback(deps, { to, dryRun, caller: CALLER, startedBy: "maria" }, (line) => lines.push(line));
  return { lines, events };
}

test.each(EARLIER_BUILDS)("the report for %s counts the rows whose content the build ignores", async (build) => {
  const before = await readAllRows("ignored");
  const expected = IGNORED.filter(({ upTo }) => age(build) >= age(upTo)).map(({ line }) =>
    expect.stringContaining(line),
  );
  expect(await prepare(build, { dryRun: true })).toEqual({ lines: expected, events: [] });
  const { lines, events } = await prepare(build);
  expect(lines).toEqual(expected);
  expect(await readAllRows("ignored")).toEqual(before);
  const details = { to: build, startedBy: "maria", losses: lines };
  const event = { type: "store.preparedForRollback", caller: CALLER, details };
  expect(events).toEqual([
    expect.objectContaining({ ...event, outcome: "intent" }),
    expect.objectContaining({ ...event, outcome: "success" }),
  ]);
});

test("the preparation for another commit is refused", async () => {
  // An unknown commit, a prefix of fewer than seven characters, and a build without a preparation.
  for (const commit of ["0123456789", NEWEST.slice(0, 6), "8bbd57d7"])
    await expect(prepare(commit)).rejects.toThrow(`for ${EARLIER_BUILDS.join(", ")} only`);
});

test("the command reports in a dry run, prepares the store, and can be repeated", async () => {
  const connectionString = storage.connectionString("command");
  const source = path.resolve(import.meta.dirname, "../../functions/commands/store.ts");
  const runFile = (command: string, args: string[]): Promise<{ code: number; out: string; err: string }> =>
    new Promise((resolve) => {
      const env = {
        PATH: process.env.PATH,
        NODE_COMPILE_CACHE: COMPILE_CACHE,
        AzureWebJobsStorage: connectionString,
        JWT_SIGNING_KEYS,
      };
      execFile(process.execPath, [command, "prepare-rollback", ...args], { env }, (error, out, err) =>
        resolve({ code: error ? Number(error.code) : 0, out, err }),
      );
    });
  const run = (...args: string[]) => runFile(COMMANDS.store, args);
  const line = "The override of requireApproval has no effect: no request needs a confirmation.\n";
  // The source file, as users run it. The other runs are of the bundle, which starts faster.
  const dryRun = await runFile(source, ["--to", OLDEST, "--dry-run"]);
  expect(dryRun).toMatchObject({ code: 0, err: "", out: expect.stringContaining(line) });
  expect(dryRun.out).toContain("Nothing was written.");
  for (let time = 0; time < 2; time++)
    expect(await run("--to", OLDEST)).toMatchObject({
      code: 0,
      out: expect.stringContaining(`The store is prepared for ${OLDEST}.`),
    });
  // A build before the oldest for which a store can be prepared.
  expect(await run("--to", "d7e4a4b")).toMatchObject({
    code: 1,
    err: expect.stringContaining(EARLIER_BUILDS.join(", ")),
  });
  expect(await run()).toMatchObject({ code: 2, err: expect.stringContaining("--to is missing") });
});
