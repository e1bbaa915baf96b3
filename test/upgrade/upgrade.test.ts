import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { TableClient, TableServiceClient, type TransactionAction } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { jsonLine, type Running, start } from "../../infra/local/processes.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { TEST_APP } from "../support/test-app.ts";
import type { Recording } from "./recording.ts";

const INFRA = path.resolve(import.meta.dirname, "../../infra");
const MOVED_PORTS = new URL("./moved-ports.mjs", import.meta.url).href;
const ENDS_MS = 150_000;

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
type Json = any;

/** Stores of the builds of these commits, in the middle of a scan; see record.ts. */
describe.each(["d7e4a4b", "0e6c2c3", "6f40339"])(
  "the store of the earlier version %s, upgraded in place",
  (version) => {
    const recording = JSON.parse(
      gunzipSync(readFileSync(new URL(`../fixtures/store-${version}.json.gz`, import.meta.url))).toString(),
    ) as Recording;
    /** This version watched only added subscriptions, and counted twice whether a vault is recoverable. */
    const isBeforeScope = version !== "6f40339";
    /** Of the version in between, only sessions and the rotation have a format that the others don't have. */
    const testOfRest = IS_CAMPAIGN || version !== "0e6c2c3" ? test : () => {};
    const folder = mkdtempSync(path.join(tmpdir(), "upgrade-"));
    let azurite: Azurite;
    let cloud: Running;
    let controlUrl: string;
    let host: RunningHost;

    beforeAll(async () => {
      // Ten minutes after the recording, for the clocks of storage, cloud and service.
      const clock = {
        MOVED_CLOCK_FILE: path.join(folder, "clock"),
        NODE_OPTIONS: `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`,
      };
      writeFileSync(clock.MOVED_CLOCK_FILE, String(Date.parse(recording.recordedAt) + 10 * MINUTE_MS - Date.now()));
      azurite = await startAzurite({ environment: clock });
      await restore(azurite.connectionString(), recording);
      const data = path.join(folder, "cloud");
      mkdirSync(data);
      for (const [name, text] of Object.entries(recording.cloud)) writeFileSync(path.join(data, name), text);
      cloud = await start(
        "The simulated cloud",
        [process.execPath, path.join(INFRA, "simulated-cloud/main.ts"), "--data", data, "--port", "0", "--ready-json"],
        { environment: { PATH: process.env.PATH, ...clock }, isReady: jsonLine },
      );
      const ready = cloud.ready as { environment: Record<string, string>; controlUrl: string };
      controlUrl = ready.controlUrl;
      host = await runHost({
        app: TEST_APP,
        env: {
          ...ready.environment,
          ...clock,
          NODE_OPTIONS: `${ready.environment.NODE_OPTIONS ?? ""} ${clock.NODE_OPTIONS} --import=${MOVED_PORTS}`,
          MOVED_PORTS: `${portOf(JSON.stringify(recording.tables))}:${portOf(JSON.stringify(ready.environment))}`,
          ...recording.environment,
          LICENSE_KEY: await licence(),
          AzureWebJobsStorage: azurite.connectionString(),
          RATE_LIMIT_PER_MINUTE: "0",
          RATE_LIMIT_PER_HOUR: "0",
          DELTA_SCAN_SCHEDULE: "0 0 0 1 1 *",
          FULL_SCAN_SCHEDULE: "0 0 0 1 1 *",
          SCHEDULE_JITTER_SECONDS: "0",
          ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
        },
        args: ["--lease", "2", "--no-schedules", "--inspect-modules"],
      });
    });
    afterAll(async () => {
      await host?.stop("SIGKILL");
      await cloud?.stop();
      await azurite?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    const get = async (at: string, token = recording.tokens.admin): Promise<{ status: number; body: Json }> => {
      const answer = await fetch(host.url + at, { headers: { Authorization: `Bearer ${token}` } });
      return { status: answer.status, body: await answer.json() };
    };
    const post = async (at: string, body?: object): Promise<{ status: number; body: Json }> => {
      const answer = await fetch(host.url + at, {
        method: "POST",
        headers: { Authorization: `Bearer ${recording.tokens.admin}`, "Content-Type": "application/json" },
        body: JSON.stringify(body ?? {}),
      });
      return { status: answer.status, body: await answer.json() };
    };
    const control = async (at: string): Promise<Json> => (await fetch(`${controlUrl}/${at}`)).json();
    const fire = async (timer: string) =>
      expect((await post(`/__host/timers/${timer}`)).body, host.lines.slice(-5).join("\n")).toMatchObject({
        succeeded: true,
      });
    const scanEnded = async (scanId: string): Promise<Json> => {
      const end = performance.now() + ENDS_MS;
      for (;;) {
        const { body } = await get(`/api/assets/discovery/scan/${scanId}/status`);
        if (body.status !== "queued" && body.status !== "running") return body;
        if (performance.now() > end) throw new Error(`The scan is still ${body.status}: ${JSON.stringify(body)}`);
        await delay(200);
      }
    };

    test("tokens are unchanged: two are valid, the revoked one is not", async () => {
      expect((await get("/auth/me")).body).toMatchObject({ username: "admin", role: "admin" });
      expect((await get("/auth/me", recording.tokens.reader)).body).toMatchObject({ username: "reader", role: "user" });
      expect((await get("/auth/me", recording.tokens.ended)).status).toBe(401);
    });

    // The first version had neither.
    if (recording.tokens.api !== undefined)
      test("API tokens and browser sessions stay valid", async () => {
        expect((await get("/auth/me", recording.tokens.api)).body).toMatchObject({ username: "admin", role: "user" });
        const answer = await fetch(`${host.url}/auth/me`, { headers: { Cookie: recording.session! } });
        expect(await answer.json()).toMatchObject({ username: "reader", role: "user" });
      });

    testOfRest(
      "the scan whose process was killed ends by the messages it left, and every asset is the cloud's",
      async () => {
        const scan = await scanEnded(recording.scanId);
        expect(scan, host.lines.join("\n")).toMatchObject({ status: "completed" });
        const before = new Map(recording.answers.assets.map((asset: Json) => [asset.id, asset]));
        const { items } = (await get("/api/assets/discovery/assets?limit=1000")).body;
        expect(items.map((asset: Json) => asset.id)).toEqual([...before.keys()]);
        let changed = 0;
        for (const asset of items) {
          const old = before.get(asset.id);
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
            ...rest
          } = asset;
          expect([source, notCounted, outOfScope]).toEqual([old.source ?? "keyVault", null, false]);
          expect(old).toMatchObject({ ...rest, expiresOn: old.expiresOn });
          if (tags?.changed === "yes") changed++;
          else expect(tags ?? null).toEqual(old.tags ?? null);
        }
        expect(changed).toBe(24);
        // The same by expiry, and in each vault's own lists.
        const byExpiry = (await get("/api/assets/discovery/assets?limit=1000&sort=expiresOn")).body.items;
        expect(byExpiry.map((asset: Json) => asset.id).sort()).toEqual([...before.keys()].sort());
        for (let vault = 0; vault < 8; vault++) {
          const { body } = await get(`/api/assets/discovery/assets?vault=kv-rec-${vault}&sort=expiresOn`);
          expect(body.total).toBe(15);
          expect(body.items).toHaveLength(15);
        }
      },
    );

    testOfRest(
      "the monitored scope is unchanged: the added subscriptions, and no more where none may be added",
      async () => {
        const watchAll = (await get("/api/settings/features")).body.find(({ key }: Json) => key === "watchAll");
        expect(watchAll).toMatchObject(
          isBeforeScope
            ? { value: false, source: "override", updatedBy: "system" }
            : { value: true, source: "default", updatedBy: null },
        );
        await fire("refreshScope");
        const { items } = (await get("/subscriptions")).body;
        expect(items.map((one: Json) => [one.name, one.source, one.watched])).toEqual([
          ["Recorded", "api", true],
          ["Recorded", "api", true],
        ]);
        // The first version did not count owners. The scan did, even for unchanged vaults.
        const { owners, outOfScope } = (await get("/api/assets/summary?source=keyVault")).body;
        expect([outOfScope, owners.notCounted]).toEqual([{ vaults: 0, assets: 0 }, 0]);
      },
    );

    testOfRest("a delta after it finds nothing to add, update or remove", async () => {
      const started = await post("/api/assets/discovery/scan", { mode: "delta" });
      expect(started.status).toBe(201);
      const scan = await scanEnded(started.body.scanId);
      expect(scan).toMatchObject({
        status: "completed",
        progress: { assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 },
      });
    });

    testOfRest(
      "violations are unchanged except for duplicate findings; exemptions stay, and the score follows",
      async () => {
        await fire("evaluateDueCompliance");
        const old = (recording.answers.violations as Json).items as Json[];
        const failed = new Set(old.map(({ id }) => id));
        const isToldElsewhere = ({ id, checkId, resourceId }: Json) =>
          checkId === "vault-recoverable" ||
          (checkId === "vault-purge-protection" && failed.has(`vault-soft-delete.${resourceId}`)) ||
          (checkId.endsWith("-near-expiry-warning") && failed.has(id.replace("-warning.", "-critical.")));
        const left = old.filter((one) => !isToldElsewhere(one));
        const ids = (list: Json[]) => list.map(({ id, firstSeenAt, exempted }) => [id, firstSeenAt, exempted]);
        const now = async () => (await get("/compliance/violations?limit=1000")).body;
        await expect.poll(async () => ids((await now()).items), { timeout: ENDS_MS }).toEqual(ids(left));
        const { body: score } = await get("/compliance/score");
        const { total, open, exempted } = await now();
        expect({ total, open, exempted }).toEqual({
          total: left.length,
          open: score.failed,
          exempted: score.exempted,
        });
        const before: Json = recording.answers.score;
        const { total: vaults } = (await get("/api/assets/discovery/vaults?limit=1")).body;
        const recoverable = isBeforeScope
          ? vaults - old.filter(({ checkId }) => checkId === "vault-recoverable").length
          : 0;
        expect(score.passed).toBe(before.passed - recoverable);
        expect((await get("/compliance/exemptions")).body.items).toHaveLength(2);
      },
    );

    testOfRest("no notification is repeated: only the waiting mail is sent, once", async () => {
      await fire("evaluateAlerts");
      const end = performance.now() + ENDS_MS;
      while ((await get("/alerts/history?status=pending&limit=1")).body.total > 0) {
        if (performance.now() > end) throw new Error("A delivery is still pending");
        await delay(200);
      }
      const mails = await control("mails");
      expect(mails.map(({ to }: Json) => to)).toEqual([["waiting@acme.example"]]);
      expect(await control("sink/recorded")).toEqual([]);
      expect((await get("/alerts/rules")).body.items).toHaveLength(5);
      const { items } = (await get("/alerts/history?limit=1000")).body;
      const told = (list: Json[]) => list.map(({ ruleName, status }) => [ruleName, status]).sort();
      expect(told(items)).toEqual(told([...recording.answers.history, { ruleName: "Waiting", status: "delivered" }]));
    });

    testOfRest("the audit log verifies from its beginning, is still sealed, and contains every old entry", async () => {
      await fire("sealAudit");
      const { body } = await get("/audit/verify");
      expect(body).toMatchObject({ intact: true, findings: [], anchor: { state: "matches" } });
      const old: Json = recording.answers.auditVerification;
      expect(body.checkedFrom).toBe(old.checkedFrom);
      expect(body.digests).toBeGreaterThanOrEqual(old.digests);
      const { items } = (await get("/audit/entries?limit=1000")).body;
      const known = new Map(items.map((entry: Json) => [entry.id, entry]));
      for (const entry of recording.answers.audit as Json[]) expect(known.get(entry.id)).toEqual(entry);
    });

    // The first version did not have these.
    const { automation } = recording;
    if (automation) {
      test("a copy that was in sync is recognized, and nothing is rewritten", async () => {
        const at = `/api/automation/sync/records/${automation.sync.recordId}`;
        expect((await get(`${at}/status`)).body).toMatchObject({ state: "inSync", drift: "none" });
        const { lastCheckedAt } = (await get(at)).body;
        expect((await post(`${at}/sync`)).status).toBe(202);
        await expect.poll(async () => (await get(at)).body.lastCheckedAt, { timeout: ENDS_MS }).not.toBe(lastCheckedAt);
        expect((await get(at)).body).toMatchObject({ state: "inSync", failure: null });
        expect((await get(`${at}/history`)).body.items.map(({ kind }: Json) => kind)).toEqual(["created"]);
      });

      test("a rotation in its overlap period completes, and the application has only the new secret", async () => {
        const at = `/api/automation/rotation/rotations/${automation.rotation.rotationId}`;
        const { body: before } = await get(at);
        expect(before).toMatchObject({ status: "overlapping", attention: null });
        expect((await post(`${at}/finish`, { force: true })).status).toBe(200);
        await expect
          .poll(
            async () => {
              await fire("wakeRotations");
              return (await get(at)).body.status;
            },
            { timeout: ENDS_MS, interval: 500 },
          )
          .toBe("completed");
        await post("/api/automation/rotation/discover");
        const keys = async () =>
          (await get("/api/automation/rotation/apps")).body.items[0].credentials.map(({ keyId }: Json) => keyId);
        await expect.poll(keys, { timeout: ENDS_MS }).toEqual([before.newKeyId]);
      });
    }
  },
);

/** Returns the port of the first vault in a text. */
const portOf = (text: string): string => /vault\.localhost:(\d+)/.exec(text)![1]!;

async function restore(connection: string, recording: Recording): Promise<void> {
  const options = { allowInsecureConnection: true };
  const service = TableServiceClient.fromConnectionString(connection, options);
  for (const [name, rows] of Object.entries(recording.tables)) {
    await service.createTable(name);
    const table = TableClient.fromConnectionString(connection, name, options);
    const created = rows.map((row): TransactionAction => ["create", row as { partitionKey: string; rowKey: string }]);
    const partitions = Object.values(Object.groupBy(created, ([, { partitionKey }]) => partitionKey));
    for (const whole of partitions)
      for (let at = 0; at < whole!.length; at += 100) await table.submitTransaction(whole!.slice(at, at + 100));
  }
  const queues = QueueServiceClient.fromConnectionString(connection);
  for (const [name, messages] of Object.entries(recording.queues)) {
    const queue = queues.getQueueClient(name);
    await queue.createIfNotExists();
    for (const message of messages) await queue.sendMessage(message);
    // The killed process had received them: the next delivery is a redelivery.
    const [numberOfMessages, visibilityTimeout] = [32, 1];
    if (messages.length > 0) await queue.receiveMessages({ numberOfMessages, visibilityTimeout });
  }
}
