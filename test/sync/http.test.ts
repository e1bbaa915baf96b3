import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";

// Tests of sync records and providers over HTTP, in the built app.

const RECORDS = "/api/automation/sync/records";
const PROVIDERS = "/api/automation/sync/providers";
const SOURCE = { sourceVault: "kv-shop-prod", sourceSecret: "db-password" };
const AZURE = { targetProvider: "azure", targetService: "keyvault", targetRegion: "kv-shop-empty" };
const AWS = { targetProvider: "aws", targetService: "secretsmanager", targetRegion: "eu-west-1" };

let service: Service;

beforeAll(async () => {
  service = await Service.start({ company: "small", env: { LICENSE_KEY: await licence() } });
  await service.scan();
});
afterAll(() => service?.stop());

/** Waits until a record is no longer new or pending, and returns its status. */
async function waitForResult(recordId: string) {
  const status = async () => (await service.admin("GET", `${RECORDS}/${recordId}/status`)).body;
  await expect.poll(async () => (await status()).state, { timeout: 150_000 }).not.toMatch(/new|pending/);
  return await status();
}

describe("sync over HTTP", () => {
  test("copies a vault's secret to another provider", async () => {
    const key = service.cloud.control.providers.aws.key;
    const configured = await service.admin("POST", `${PROVIDERS}/aws`, {
      // In snake case, which the service also accepts.
      access_key_id: key.accessKeyId,
      secretAccessKey: key.secretAccessKey,
      region: "eu-west-1",
    });
    expect([configured.status, configured.body]).toMatchObject([200, { configured: true }]);
    expect(configured.text).not.toContain(key.secretAccessKey);
    const created = await service.admin("POST", RECORDS, {
      ...SOURCE,
      ...AWS,
      targetName: "shop/db-password",
      scheduleHours: 24,
      enabled: true,
    });
    expect(created.status).toBe(201);
    const { recordId } = created.body;
    expect(created.headers.get("location")).toBe(`${RECORDS}/${recordId}`);
    expect(await waitForResult(recordId)).toMatchObject({ state: "inSync", drift: "none", failure: null });
    const value = service.cloud.control.secretValue(SOURCE.sourceVault, SOURCE.sourceSecret);
    const copies = service.cloud.control.providers.aws.secretsManager;
    expect(copies.value("eu-west-1", "shop/db-password")).toBe(value);

    const triggered = await service.admin("POST", `${RECORDS}/${recordId}/sync`);
    expect([triggered.status, triggered.body]).toMatchObject([202, { recordId, state: "pending" }]);
    await waitForResult(recordId);
    const history = await service.admin("GET", `${RECORDS}/${recordId}/history`);
    expect(history.body.items).toMatchObject([
      { kind: "created", target: "aws/secretsmanager/eu-west-1/shop/db-password" },
    ]);
    expect(copies.history("eu-west-1", "shop/db-password")).toHaveLength(1);
    const entries = await service.listAll("/audit/entries?event_type=syncTarget.written");
    expect(entries.map(({ outcome }) => outcome).sort()).toEqual(["intent", "success"]);
    expect(JSON.stringify(entries)).not.toContain(value);
  });

  test("plans, pauses, changes and deletes a record", async () => {
    const created = await service.admin("POST", RECORDS, { ...SOURCE, ...AZURE, targetName: "copy", enabled: false });
    const path = `${RECORDS}/${created.body.recordId}`;
    expect(created.body).toMatchObject({ state: "paused", scheduleHours: 24, onDrift: "overwrite", nextRunAt: null });
    const plan = await service.admin("POST", `${path}/plan`);
    expect(plan.body).toMatchObject({ action: "write", target: { exists: false }, failure: null });
    expect(service.cloud.control.secretValue("kv-shop-empty", "copy")).toBeUndefined();
    expect((await service.admin("POST", `${path}/sync`)).body.code).toBe("conflict");
    const etag = created.headers.get("etag")!;
    const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
    const put = (ifMatch: string) =>
      service.call("PUT", path, {
        token,
        body: { enabled: true, schedule_hours: 2 },
        headers: { "If-Match": ifMatch },
      });
    expect((await put(etag)).body).toMatchObject({ scheduleHours: 2, enabled: true });
    expect((await put(etag)).status).toBe(412);
    await waitForResult(created.body.recordId);
    expect((await service.admin("POST", `${path}/plan`)).body).toMatchObject({ action: "none" });
    const list = await service.admin("GET", `${RECORDS}?target_provider=azure&state=inSync`);
    expect(list.body).toMatchObject({ total: 1, items: [{ recordId: created.body.recordId }] });
    expect((await service.admin("DELETE", `${path}?removeTarget=true`)).body).toEqual({ deleted: true });
    expect(service.cloud.control.secretValue("kv-shop-empty", "copy")).toBeUndefined();
    expect((await service.admin("GET", `${path}/status`)).status).toBe(404);
  });

  test("does not write to a new key vault with the target's name until the vault is confirmed", async () => {
    const { control } = service.cloud;
    const rule = { name: "Copies that fail", alertType: "syncFailed", recipients: ["platform@acme.example"] };
    const alerting = await service.admin("POST", "/alerts/rules", rule);
    expect(alerting.status).toBe(201);
    const { recordId } = (await service.admin("POST", RECORDS, { ...SOURCE, ...AZURE, targetName: "placed" })).body;
    expect(await waitForResult(recordId)).toMatchObject({ state: "inSync" });
    const { subscriptionId } = control.vaults().find(({ name }) => name === AZURE.targetRegion)!;
    control.removeVault(AZURE.targetRegion);
    control.putVault(subscriptionId, { name: AZURE.targetRegion });
    await service.admin("POST", `${RECORDS}/${recordId}/sync`);
    const failed = await waitForResult(recordId);
    expect(failed).toMatchObject({ state: "failing", failure: { code: "otherPlace", side: "target" } });
    expect(control.secretValue(AZURE.targetRegion, "placed")).toBeUndefined();
    await fetch(`${service.url}/__host/timers/evaluateAlerts`, { method: "POST" });
    const alertHistory = async () =>
      (await service.admin("GET", `/alerts/history?rule_id=${alerting.body.id}`)).body.items;
    await expect.poll(async () => (await alertHistory())[0]?.status, { timeout: 60_000 }).toBe("delivered");
    expect(await alertHistory()).toMatchObject([{ itemsTotal: 1 }]);
    expect(control.mails().at(-1)).toMatchObject({ subject: expect.stringContaining(AZURE.targetRegion) });

    const confirmed = await service.admin("PUT", `${RECORDS}/${recordId}`, { confirmVaults: true });
    expect([confirmed.status, confirmed.body.state]).toEqual([200, "pending"]);
    expect(await waitForResult(recordId)).toMatchObject({ state: "inSync", failure: null });
    const value = control.secretValue(SOURCE.sourceVault, SOURCE.sourceSecret);
    expect(control.secretValue(AZURE.targetRegion, "placed")).toBe(value);
    const entries = await service.listAll("/audit/entries?event_type=syncRecord.changed");
    expect(entries[0]).toMatchObject({ target: { id: recordId }, after: { vaultsConfirmedAt: expect.any(String) } });
    expect((await service.admin("DELETE", `${RECORDS}/${recordId}`)).status).toBe(200);
  });

  test("copies to every external provider in the built app", async () => {
    const { providers } = service.cloud.control;
    const targets = {
      aws: ["parameterstore", "/shop/db-password"],
      hashicorp: ["kv", "shop/db-password"],
      google: ["secretmanager", "db-password"],
      github: ["actions", "acme/shop/DB_PASSWORD"],
      kubernetes: ["secret", "shop/db-password"],
    };
    const recordIds: string[] = [];
    for (const [targetProvider, [targetService, targetName]] of Object.entries(targets)) {
      const body = providers.configurations()[targetProvider];
      const configured = await service.admin("POST", `${PROVIDERS}/${targetProvider}`, body);
      expect([targetProvider, configured.status, configured.body.detail]).toEqual([targetProvider, 200, undefined]);
      const target = { targetProvider, targetService, targetName };
      const { body: record, status, text } = await service.admin("POST", RECORDS, { ...SOURCE, ...target });
      expect([status, text]).toEqual([201, expect.any(String)]);
      recordIds.push(record.recordId);
    }
    for (const recordId of recordIds)
      expect(await waitForResult(recordId)).toMatchObject({ state: "inSync", failure: null });
  });

  test.each([
    [{}, 400, "invalidRequest"],
    [{ ...SOURCE, ...AZURE, targetName: "x", targetProvider: "nowhere" }, 400, "invalidRequest"],
    [{ ...SOURCE, ...AZURE, targetName: "x", scheduleHours: 721 }, 400, "invalidRequest"],
    [{ ...SOURCE, ...AZURE, targetName: "x", unknown: 1 }, 400, "invalidRequest"],
    [{ ...SOURCE, ...AZURE, targetName: "x", targetRegion: "KV-Lifecycle-Service" }, 409, "serviceVault"],
    [{ ...SOURCE, ...AZURE, targetRegion: "kv-shop-prod", targetName: "DB-Password" }, 409, "syncLoop"],
  ])("rejects the record %j with %i %s", async (body, status, code) => {
    const response = await service.admin("POST", RECORDS, body);
    expect([response.status, response.body.code]).toEqual([status, code]);
  });

  test("rejects requests for a record that was changed directly in storage, except its deletion", async () => {
    const target = { targetName: "shop/tampered", scheduleHours: 24, enabled: false };
    const { recordId } = (await service.admin("POST", RECORDS, { ...SOURCE, ...AWS, ...target })).body;
    const rows = TableClient.fromConnectionString(service.azurite.connectionString(), "Sync", {
      allowInsecureConnection: true,
    });
    await rows.updateEntity({ partitionKey: "sync", rowKey: `r|${recordId}`, targetName: "elsewhere" }, "Merge");
    const responses = await Promise.all([
      service.admin("GET", `${RECORDS}/${recordId}`),
      service.admin("GET", `${RECORDS}/${recordId}/status`),
      service.admin("GET", `${RECORDS}/${recordId}/history`),
      service.admin("PUT", `${RECORDS}/${recordId}`, { enabled: true }),
      service.admin("POST", `${RECORDS}/${recordId}/plan`),
      service.admin("POST", `${RECORDS}/${recordId}/sync`),
      service.admin("DELETE", `${RECORDS}/${recordId}?removeTarget=true`),
    ]);
    for (const { status, body } of responses) {
      expect([status, body]).toMatchObject([
        409,
        { code: "conflict", detail: expect.stringMatching(/Delete (the record|it without)/) },
      ]);
    }
    expect((await service.admin("DELETE", `${RECORDS}/${recordId}`)).status).toBe(200);
    expect((await service.admin("GET", `${RECORDS}/${recordId}`)).status).toBe(404);
  });

  test("lists the providers without their secrets, and returns 404 for an unknown provider", async () => {
    const { body, text } = await service.admin("GET", PROVIDERS);
    expect(body.items.map(({ provider }: { provider: string }) => provider)).toEqual(
      expect.arrayContaining(["aws", "azure"]),
    );
    expect(text).not.toContain(service.cloud.control.providers.aws.key.secretAccessKey);
    expect((await service.admin("POST", `${PROVIDERS}/nowhere`, {})).status).toBe(404);
  });

  test("without a license only allows reading and deleting existing records", async () => {
    const host = await service.addHost({ LICENSE_KEY: "" });
    const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
    const call = (method: string, path: string, body?: unknown) =>
      service.call(method, host.url + path, { token, body });
    const created = await call("POST", RECORDS, { ...SOURCE, ...AZURE, targetName: "none" });
    expect([created.status, created.body.code, created.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
    expect((await call("POST", `${PROVIDERS}/aws`, {})).status).toBe(403);
    const { body } = await call("GET", RECORDS);
    expect(body.total).toBeGreaterThan(0);
    expect((await call("POST", `${RECORDS}/${body.items[0].recordId}/sync`)).status).toBe(403);
    for (const { recordId } of body.items) expect((await call("DELETE", `${RECORDS}/${recordId}`)).status).toBe(200);
    // Without records, the list requires a license, too.
    expect((await call("GET", RECORDS)).body.code).toBe("licenseRequired");
    await host.stop("SIGKILL");
  });
});
