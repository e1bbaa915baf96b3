import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { TableClient } from "@azure/data-tables";
import type { RunningHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Azurite } from "../../infra/local/azurite.ts";
import type { RunningProcess } from "../../infra/local/processes.ts";
import { STATUSES } from "../../shared/inventory/asset-status.ts";
import { expectedStatus } from "../inventory/write-assets.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { startRecorded } from "./recorded-service.ts";
import type { Recording } from "./recording.ts";

/** Timeout of asynchronous work, such as a scan. */
const TIMEOUT_MS = 150_000;

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
type Json = any;

/**
 * Starts the current version with the storage account of an earlier one, whose process was killed in the middle of a scan. The
 * names are the commits of the recorded versions, oldest first; record.ts created the recordings.
 */
describe.each(["d7e4a4b", "0e6c2c3", "6f40339"])(
  "the store of the earlier version %s, upgraded in place",
  (version) => {
    const recording = JSON.parse(
      gunzipSync(readFileSync(new URL(`../fixtures/store-${version}.json.gz`, import.meta.url))).toString(),
    ) as Recording;
    /**
     * Whether the version monitored only added subscriptions. Such versions also had a check `vault-recoverable`, which
     * repeated the results of `vault-soft-delete` and `vault-purge-protection`.
     */
    const isBeforeScope = version !== "6f40339";
    /**
     * Runs a test for all versions in a campaign. Otherwise skips the version in the middle: only its sessions and its rotation
     * have formats that the other two versions don't have.
     */
    const testUnlessRedundant = IS_CAMPAIGN || version !== "0e6c2c3" ? test : () => {};
    const folder = mkdtempSync(path.join(tmpdir(), "upgrade-"));
    let azurite: Azurite;
    let cloud: RunningProcess;
    let controlUrl: string;
    let host: RunningHost;

    beforeAll(async () => {
      ({ azurite, cloud, controlUrl, host } = await startRecorded(recording, folder));
    });
    afterAll(async () => {
      await host?.stop("SIGKILL");
      await cloud?.stop();
      await azurite?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    const get = async (route: string, token = recording.tokens.admin): Promise<{ status: number; body: Json }> => {
      const answer = await fetch(host.url + route, { headers: { Authorization: `Bearer ${token}` } });
      return { status: answer.status, body: await answer.json() };
    };
    const post = async (route: string, body?: object): Promise<{ status: number; body: Json }> => {
      const answer = await fetch(host.url + route, {
        method: "POST",
        headers: { Authorization: `Bearer ${recording.tokens.admin}`, "Content-Type": "application/json" },
        body: JSON.stringify(body ?? {}),
      });
      return { status: answer.status, body: await answer.json() };
    };
    const control = async (route: string): Promise<Json> => (await fetch(`${controlUrl}/${route}`)).json();
    const runTimer = async (timer: string) =>
      expect((await post(`/__host/timers/${timer}`)).body, host.lines.slice(-5).join("\n")).toMatchObject({
        succeeded: true,
      });
    const waitForScan = async (scanId: string): Promise<Json> => {
      const deadline = performance.now() + TIMEOUT_MS;
      for (;;) {
        const { body } = await get(`/api/assets/discovery/scan/${scanId}/status`);
        if (body.status !== "queued" && body.status !== "running") return body;
        if (performance.now() > deadline) throw new Error(`The scan is still ${body.status}: ${JSON.stringify(body)}`);
        await delay(200);
      }
    };

    test("valid tokens stay valid, and the revoked token stays revoked", async () => {
      expect((await get("/auth/me")).body).toMatchObject({ username: "admin", role: "admin" });
      expect((await get("/auth/me", recording.tokens.reader)).body).toMatchObject({ username: "reader", role: "user" });
      expect((await get("/auth/me", recording.tokens.ended)).status).toBe(401);
    });

    // The first version had neither API tokens nor sessions.
    if (recording.tokens.api !== undefined)
      test("API tokens and browser sessions stay valid", async () => {
        expect((await get("/auth/me", recording.tokens.api)).body).toMatchObject({ username: "admin", role: "user" });
        const answer = await fetch(`${host.url}/auth/me`, { headers: { Cookie: recording.session! } });
        expect(await answer.json()).toMatchObject({ username: "reader", role: "user" });
      });

    testUnlessRedundant("the interrupted scan completes, and all assets are those of the cloud", async () => {
      const scan = await waitForScan(recording.scanId);
      expect(scan, host.lines.join("\n")).toMatchObject({ status: "completed" });
      const before = new Map(recording.answers.assets.map((asset: Json) => [asset.id, asset]));
      const { items } = (await get("/api/assets/discovery/assets?limit=1000")).body;
      expect(items.map((asset: Json) => asset.id)).toEqual([...before.keys()]);
      let changed = 0;
      for (const asset of items) {
        const old = before.get(asset.id);
        // Not compared: members that change with time, a scan or a new version, and members that the earlier version lacks.
        const {
          lastSeenAt: _l,
          updatedOn: _u,
          version: _v,
          createdOn: _c,
          tags,
          status: _s,
          daysUntilExpiry: _d,
          stale: _t,
          source,
          notCounted,
          outOfScope,
          outOfScopeSince: _o,
          subscriptionName: _n,
          renewal: _w,
          // The simulated cloud's certificates of public authorities contain timestamps now.
          thumbprint: _h,
          ...rest
        } = asset;
        expect([source, notCounted, outOfScope]).toEqual([old.source ?? "keyVault", null, false]);
        expect(old).toMatchObject({ ...rest, expiresOn: old.expiresOn });
        if (tags?.changed === "yes") changed++;
        else expect(tags ?? null).toEqual(old.tags ?? null);
      }
      // record.ts changed a tag of three secrets in each of the eight vaults `kv-rec-…`.
      expect(changed).toBe(24);
      // The list by expiry and the lists of each vault have the same assets.
      const byExpiry = (await get("/api/assets/discovery/assets?limit=1000&sort=expiresOn")).body.items;
      expect(byExpiry.map((asset: Json) => asset.id).sort()).toEqual([...before.keys()].sort());
      // Each of these vaults has 12 secrets, two keys and a certificate.
      for (let vault = 0; vault < 8; vault++) {
        const { body } = await get(`/api/assets/discovery/assets?vault=kv-rec-${vault}&sort=expiresOn`);
        expect(body.total).toBe(15);
        expect(body.items).toHaveLength(15);
      }
    });

    testUnlessRedundant("the monitored subscriptions are unchanged", async () => {
      const watchAll = (await get("/api/settings/features")).body.find(({ key }: Json) => key === "watchAll");
      expect(watchAll).toMatchObject(
        isBeforeScope
          ? { value: false, source: "override", updatedBy: "system" }
          : { value: true, source: "default", updatedBy: null },
      );
      await runTimer("refreshScope");
      const { items } = (await get("/subscriptions")).body;
      expect(items.map((one: Json) => [one.name, one.source, one.watched])).toEqual([
        ["Recorded", "api", true],
        ["Recorded", "api", true],
      ]);
      // The first version did not count owners. The completed scan counted them, also for unchanged vaults.
      const { owners, outOfScope } = (await get("/api/assets/summary?source=keyVault")).body;
      expect([outOfScope, owners.notCounted]).toEqual([{ vaults: 0, assets: 0 }, 0]);
    });

    testUnlessRedundant("a delta scan finds nothing to add, update or remove", async () => {
      const started = await post("/api/assets/discovery/scan", { mode: "delta" });
      expect(started.status).toBe(201);
      const scan = await waitForScan(started.body.scanId);
      expect(scan).toMatchObject({
        status: "completed",
        progress: { assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 },
      });
    });

    testUnlessRedundant("violations are unchanged, except for those that another violation now includes", async () => {
      await runTimer("evaluateDueCompliance");
      const old = (recording.answers.violations as Json).items as Json[];
      const failed = new Set(old.map(({ id }) => id));
      const isIncludedInOther = ({ id, checkId, resourceId }: Json) =>
        checkId === "vault-recoverable" ||
        (checkId === "vault-purge-protection" && failed.has(`vault-soft-delete.${resourceId}`)) ||
        (checkId.endsWith("-near-expiry-warning") && failed.has(id.replace("-warning.", "-critical.")));
      const expected = old.filter((one) => !isIncludedInOther(one));
      const ids = (list: Json[]) => list.map(({ id, firstSeenAt, exempted }) => [id, firstSeenAt, exempted]);
      const now = async () => (await get("/compliance/violations?limit=1000")).body;
      // Earlier versions did not see that the renewal of the certificate of each vault `kv-rec-…` is late.
      const isLateRenewal = ({ id }: Json) => /^certificate-auto-renewal\.kv-rec-\d\.certificate\.www$/.test(id);
      const lateRenewals = async () => (await now()).items.filter(isLateRenewal).length;
      await expect.poll(lateRenewals, { timeout: TIMEOUT_MS }).toBe(8);
      const others = async () => (await now()).items.filter((one: Json) => !isLateRenewal(one));
      await expect.poll(async () => ids(await others()), { timeout: TIMEOUT_MS }).toEqual(ids(expected));
      const { body: score } = await get("/compliance/score");
      const { total, open, exempted } = await now();
      expect({ total, open, exempted }).toEqual({
        total: expected.length + 8,
        open: score.failed,
        exempted: score.exempted,
      });
      const before: Json = recording.answers.score;
      const { total: vaults } = (await get("/api/assets/discovery/vaults?limit=1")).body;
      // Number of vaults that passed the removed check. These results no longer count.
      const recoverable = isBeforeScope
        ? vaults - old.filter(({ checkId }) => checkId === "vault-recoverable").length
        : 0;
      expect(score.passed).toBe(before.passed - recoverable - 8);
      expect((await get("/compliance/exemptions")).body.items).toHaveLength(2);
    });

    testUnlessRedundant("status filters and totals agree with a count by each asset's dates and renewal", async () => {
      const policy = (await get("/api/settings/compliance-policy")).body;
      const daysOf = (name: string): number => policy.find(({ key }: Json) => key === name).value;
      const moment = {
        now: Date.parse((await fetch(`${host.url}/health`)).headers.get("date")!),
        criticalDays: daysOf("criticalExpiryDays"),
        warningDays: daysOf("warningExpiryDays"),
      };
      const { items } = (await get("/api/assets/discovery/assets?limit=1000")).body;
      const seconds = (instant: string | null | undefined) => (instant ? Date.parse(instant) / 1000 : undefined);
      const statusOf = ({ expiresOn, notBefore, renewal }: Json) =>
        expectedStatus(
          {
            expiresOn: seconds(expiresOn),
            notBefore: seconds(notBefore),
            ...(renewal &&
              renewal.renewedBy !== "none" && { renewal: { ...renewal, windowEnd: seconds(renewal.windowEnd) } }),
          },
          moment,
        );
      expect(items.filter(({ renewal }: Json) => renewal && renewal.renewedBy !== "none")).toHaveLength(8);
      const { byStatus } = (await get("/api/assets/summary")).body;
      for (const status of STATUSES) {
        const expected = items.filter((asset: Json) => statusOf(asset) === status).map(({ id }: Json) => id);
        const { body } = await get(`/api/assets/discovery/assets?limit=1000&status=${status}`);
        expect([status, body.total, body.items.map(({ id }: Json) => id).sort()]).toEqual([
          status,
          expected.length,
          expected.sort(),
        ]);
        expect([status, byStatus[status]]).toEqual([status, expected.length]);
      }
    });

    testUnlessRedundant(
      "only the waiting mail and one about late renewals are sent, and no notification is repeated",
      async () => {
        await runTimer("evaluateAlerts");
        const end = performance.now() + TIMEOUT_MS;
        while ((await get("/alerts/history?status=pending&limit=1")).body.total > 0) {
          if (performance.now() > end) throw new Error("A delivery is still pending");
          await delay(200);
        }
        const mails = await control("mails");
        const recipients = mails.map(({ to }: Json) => to[0]).sort();
        expect(recipients).toEqual(["violations@acme.example", "waiting@acme.example"]);
        expect(await control("sink/recorded")).toEqual([]);
        // The four rules of the recording, and the rule "Waiting".
        expect((await get("/alerts/rules")).body.items).toHaveLength(5);
        const { items } = (await get("/alerts/history?limit=1000")).body;
        const statuses = (list: Json[]) => list.map(({ ruleName, status }) => [ruleName, status]).sort();
        expect(statuses(items)).toEqual(
          statuses([
            ...recording.answers.history,
            ...["Waiting", "Violations"].map((ruleName) => ({ ruleName, status: "delivered" })),
          ]),
        );
      },
    );

    testUnlessRedundant("the audit log is intact and contains all old entries", async () => {
      await runTimer("sealAudit");
      const { body } = await get("/audit/verify");
      // The anchor is the newest digest of the log, which the service also stores in its key vault.
      expect(body).toMatchObject({ intact: true, findings: [], anchor: { state: "matches" } });
      const old: Json = recording.answers.auditVerification;
      expect(body.checkedFrom).toBe(old.checkedFrom);
      expect(body.digests).toBeGreaterThanOrEqual(old.digests);
      const { items } = (await get("/audit/entries?limit=1000")).body;
      const known = new Map(items.map((entry: Json) => [entry.id, entry]));
      for (const entry of recording.answers.audit as Json[]) expect(known.get(entry.id)).toEqual(entry);
    });

    // The first version had neither sync nor rotation.
    const { automation } = recording;
    if (automation) {
      test("a copy that was in sync is recognized and not rewritten", async () => {
        const route = `/api/automation/sync/records/${automation.sync.recordId}`;
        expect((await get(`${route}/status`)).body).toMatchObject({ state: "inSync", drift: "none" });
        const { lastCheckedAt } = (await get(route)).body;
        expect((await post(`${route}/sync`)).status).toBe(202);
        await expect
          .poll(async () => (await get(route)).body.lastCheckedAt, { timeout: TIMEOUT_MS })
          .not.toBe(lastCheckedAt);
        expect((await get(route)).body).toMatchObject({ state: "inSync", failure: null });
        expect((await get(`${route}/history`)).body.items.map(({ kind }: Json) => kind)).toEqual(["created"]);
      });

      test("a rotation in its overlap period completes, and the application has only the new secret", async () => {
        const route = `/api/automation/rotation/rotations/${automation.rotation.rotationId}`;
        const { body: before } = await get(route);
        expect(before).toMatchObject({ status: "overlapping", attention: null });
        expect((await post(`${route}/finish`, { force: true })).status).toBe(200);
        await expect
          .poll(
            async () => {
              await runTimer("wakeRotations");
              return (await get(route)).body.status;
            },
            { timeout: TIMEOUT_MS, interval: 500 },
          )
          .toBe("completed");
        await post("/api/automation/rotation/discover");
        const keys = async () =>
          (await get("/api/automation/rotation/apps")).body.items[0].credentials.map(({ keyId }: Json) => keyId);
        await expect.poll(keys, { timeout: TIMEOUT_MS }).toEqual([before.newKeyId]);
      });
    }

    // The last test, because it moves the clock.
    test("rows are signed once, and 15 minutes later a row without a signature is rejected", async () => {
      const client = TableClient.fromConnectionString(azurite.connectionString(), "Users", {
        allowInsecureConnection: true,
      });
      const unsigned = async () => {
        const rowKeys: string[] = [];
        for await (const { rowKey, _signature } of client.listEntities<{ _signature?: string }>())
          if (_signature === undefined) rowKeys.push(rowKey!);
        return rowKeys;
      };
      const writeUnsigned = async () => {
        const { _signature: _, ...row } = await client.getEntity<{ _signature?: string }>("user", "reader", {
          disableTypeConversion: true,
        });
        await client.updateEntity({ ...row, partitionKey: "user", rowKey: "reader" }, "Replace");
      };
      const signingStatus = async (): Promise<string> => (await get("/health?deep=true")).body.signedRows.status;
      await runTimer("watchScans");
      expect(await unsigned()).toEqual([]);
      expect(await signingStatus()).toBe("starting");
      // An instance of the earlier version writes the row, and the next minute signs it again.
      await writeUnsigned();
      expect((await get("/auth/me", recording.tokens.reader)).status).toBe(200);
      await runTimer("watchScans");
      expect(await unsigned()).toEqual([]);

      const clock = path.join(folder, "clock");
      writeFileSync(clock, String(Number(readFileSync(clock, "utf8")) + 16 * 60_000));
      await expect
        .poll(
          async () => {
            await runTimer("watchScans");
            return await signingStatus();
          },
          { timeout: TIMEOUT_MS },
        )
        .toBe("signed");
      expect((await get("/auth/me", recording.tokens.reader)).status).toBe(200);
      await writeUnsigned();
      expect((await get("/auth/me", recording.tokens.reader)).body).toMatchObject({ code: "rowUnreadable" });
      expect((await get("/auth/me")).body).toMatchObject({ username: "admin" });
    });
  },
);
