import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import { providerView } from "../../shared/sync/api.ts";
import { CONFIGURED_QUEUE } from "../../shared/sync/record.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { startFakeServer } from "../azure/odd-server.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, SOURCE } from "./sync-fixture.ts";

// The configuration of a provider: its settings and credentials, which the sync records of that provider use.

const REGION = "eu-west-1";
const DAY_MS = 24 * HOUR_MS;
const SERVICE_VAULT = "kv-lifecycle-service";

let azurite: TestStorage;
let cloud: Cloud;
let fixture: Fixture;
let key: { accessKeyId: string; secretAccessKey: string };

beforeAll(async () => {
  azurite = await openStorage(["configurations"]);
  const vaults = [{ name: SOURCE }, { name: COPIES }];
  ({ cloud } = await startTestCloud({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  fixture = openFixture({ cloud, connectionString: azurite.connectionString("configurations") });
  await fixture.discover(SOURCE, COPIES);
  key = cloud.control.providers.aws.key;
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});
afterEach(async () => {
  cloud.control.clearFaults();
  await fixture.removeAllRecords();
});

const save = (given: Record<string, unknown>, etag?: string) =>
  fixture.sync.configurations.save("aws", given, etag, caller);
const configure = () => save({ ...key, region: REGION });
const awsTarget = { targetProvider: "aws", targetService: "secretsmanager", targetRegion: REGION };
const createRecord = async () =>
  await fixture.createRecord({ ...awsTarget, targetName: fixture.unusedName("app/copy") });
const copyAt = (name: string) => cloud.control.providers.aws.secretsManager.value(REGION, name);

/** Returns the code of the problem and the path of its first error. Checks that the problem contains no secret. */
async function problemOf(work: Promise<unknown>): Promise<[string, string | undefined]> {
  const error = await work.then(
    () => new Error("It succeeded."),
    (reason: unknown) => reason,
  );
  if (!(error instanceof Problem)) throw error;
  for (const secret of Object.values(key)) expect(JSON.stringify(error.document("1"))).not.toContain(secret);
  return [error.code, error.errors?.[0]?.path];
}

/** Returns the calls of AWS during some work, by operation. */
async function awsCalls(work: () => Promise<unknown>): Promise<Record<string, number>> {
  cloud.control.resetCounts();
  await work();
  const counts = Object.entries(cloud.control.counts());
  return Object.fromEntries(counts.filter(([name]) => /^(secretsmanager|ssm)\./.test(name)));
}

describe("a provider's credentials", () => {
  test("are stored in the service's own key vault only, not in responses, rows or logs", async () => {
    const written = cloud.control.providers.aws.secretsManager.written();
    const calls = await awsCalls(async () => {
      const view = providerView("aws", await configure());
      expect(view).toMatchObject({
        configured: true,
        settings: { region: REGION },
        secretsSet: ["accessKeyId", "secretAccessKey"],
      });
      expect(JSON.stringify(view)).not.toContain(key.secretAccessKey);
    });
    expect(Object.keys(calls)).toEqual(["secretsmanager.describeSecret"]);
    expect(cloud.control.providers.aws.secretsManager.written()).toBe(written);
    const allTexts = [
      await fixture.rowsAsText(),
      JSON.stringify([fixture.events, fixture.logged, fixture.messages]),
    ].join();
    for (const secret of Object.values(key)) expect(allTexts).not.toContain(secret);
    const storedSecrets = cloud.control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.startsWith("sync-"));
    expect(storedSecrets.map(({ name }) => cloud.control.secretValue(SERVICE_VAULT, name))).toContainEqual(
      JSON.stringify(key),
    );
  });

  test("are followed by a message for the provider's records, and a later one in case the first was lost", async () => {
    await configure();
    const now = fixture.clock.now().getTime();
    const sentMessages = fixture.messages.filter(({ queue }) => queue === CONFIGURED_QUEUE);
    expect(sentMessages.map(({ message, visibleAt }) => [message, visibleAt > now])).toEqual([
      [{ provider: "aws" }, true],
      [{ provider: "aws" }, false],
    ]);
  });

  test("that are invalid are rejected, and the saved ones stay", async () => {
    await configure();
    const wrong = { ...key, secretAccessKey: "w".repeat(40), region: REGION };
    expect(await problemOf(save(wrong))).toEqual(["invalidRequest", "body"]);
    expect(await problemOf(save({ region: "../evil", ...key }))).toEqual(["invalidRequest", "body.region"]);
    expect(await problemOf(save({ accessKeyId: key.accessKeyId, region: REGION }))).toEqual([
      "invalidRequest",
      "body.secretAccessKey",
    ]);
    expect(await problemOf(save({ ...key, region: REGION, other: 1 }))).toEqual(["invalidRequest", "body.other"]);
    const newRecord = await createRecord();
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
  });

  test("must be sent again if the address changes, and are not sent to the new address", async () => {
    await configure();
    const calls = await awsCalls(async () => {
      expect(await problemOf(save({ region: "us-east-1" }))).toEqual(["invalidRequest", "body.accessKeyId"]);
    });
    expect(calls).toEqual({});
    const expiry = new Date(fixture.clock.now().getTime() + 20 * DAY_MS).toISOString();
    expect(await save({ region: REGION, expiresOn: expiry })).toMatchObject({ expiresOn: expiry });
  });

  test("are reported before they expire", async () => {
    const findExpiring = async () => {
      const found = [];
      const by = new Date(fixture.clock.now().getTime() + 30 * DAY_MS);
      for await (const one of fixture.sync.configurations.expiring(by)) found.push(one);
      return found;
    };
    const afterDays = (days: number) => new Date(fixture.clock.now().getTime() + days * DAY_MS).toISOString();
    await save({ ...key, region: REGION, expiresOn: afterDays(20) });
    expect(await findExpiring()).toMatchObject([{ name: "Amazon Web Services" }]);
    await save({ ...key, region: REGION, expiresOn: afterDays(40) });
    expect(await findExpiring()).toEqual([]);
    await save({ ...key, region: REGION });
    expect(await findExpiring()).toEqual([]);
  });

  test("keep their expiry date until it is removed or the credentials change", async () => {
    const expiry = new Date(fixture.clock.now().getTime() + 20 * DAY_MS).toISOString();
    await save({ ...key, region: REGION, expiresOn: expiry });
    expect(await save({ region: REGION })).toMatchObject({ expiresOn: expiry });
    expect(await save({ region: REGION, expiresOn: null })).not.toHaveProperty("expiresOn");
    expect(await save({ region: REGION })).not.toHaveProperty("expiresOn");
    await save({ region: REGION, expiresOn: expiry });
    expect(await save({ ...key, region: REGION })).not.toHaveProperty("expiresOn");
  });

  test("that the provider rejects are not used again until they change", async () => {
    await configure();
    const records = [await createRecord(), await createRecord()];
    await fixture.drainAll();
    for (const { targetName } of records) expect(copyAt(targetName)).toBe("value-one");
    cloud.control.addFault({ match: { operation: "secretsmanager.*" }, action: { kind: "fail", status: 401 } });
    const rejectedCalls = await awsCalls(async () => {
      await fixture.makeDue(records[0]!);
      await fixture.drainAll();
    });
    const attempts = Object.values(rejectedCalls).reduce((sum, count) => sum + count, 0);
    for (const { recordId } of records) {
      expect(await fixture.sync.get(recordId)).toMatchObject({ state: "failing", failure: { code: "badCredentials" } });
    }
    cloud.control.clearFaults();
    const laterCalls = await awsCalls(async () => {
      for (let ticks = 0; ticks < 3; ticks++) {
        await fixture.makeDue(records[0]!);
        await fixture.drainAll();
      }
    });
    expect([attempts, laterCalls]).toEqual([1, {}]);
    // A run that does not try the credentials says since when, and which record's run the provider rejected.
    const { refused } = (await fixture.sync.configurations.find("aws"))!;
    expect(refused?.recordId).toBe(records[0]!.recordId);
    expect((await fixture.sync.get(records[1]!.recordId)).failure?.message).toContain(
      `at ${refused!.at}, in a run of the sync record ${records[0]!.recordId}.`,
    );
    const view = providerView("aws", await fixture.sync.configurations.find("aws"));
    expect(view.refusedAt).not.toBeNull();
    await configure();
    await fixture.drainAll();
    for (const { recordId } of records) expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
  });

  test("that a host with another address of the provider sent are rejected for all hosts, and the failure names both addresses", async () => {
    await configure();
    const oldServer = await startFakeServer();
    try {
      const here = cloud.environment.AWS_ENDPOINT_URL!;
      const there = `https://aws.localhost:${oldServer.port}`;
      oldServer.setResponse((_, response) =>
        response.writeHead(403).end(JSON.stringify({ __type: "InvalidSignatureException" })),
      );
      const storage = { cloud, connectionString: azurite.connectionString("configurations") };
      const clockOffsetMs = fixture.clock.now().getTime() - Date.now();
      const other = openFixture({ ...storage, clockOffsetMs, config: { AWS_ENDPOINT_URL: there } });
      const { recordId } = await createRecord();
      await other.sync.run(recordId);
      const first = await fixture.sync.get(recordId);
      expect(first).toMatchObject({ state: "failing", failure: { code: "badCredentials", side: "target" } });
      // This host does not try the credentials again: it can't tell which of the two addresses is right.
      const calls = await awsCalls(async () => {
        await fixture.makeDue(first);
        await fixture.drainAll();
      });
      expect(calls).toEqual({});
      const { refused } = (await fixture.sync.configurations.find("aws"))!;
      const { failure } = await fixture.sync.get(recordId);
      expect(failure).toMatchObject({
        code: "badCredentials",
        message: `Amazon Web Services refused the configured credentials at ${refused!.at}, in a run of the sync record ${recordId}. Another host called it, at the address ${there}; this host calls ${here}.`,
        remedy: expect.stringMatching(/^Give all hosts on this storage the same address of Amazon Web Services/),
      });
      // The other host has the usual failure.
      await expect(other.sync.configurations.check("aws", AbortSignal.timeout(10_000))).rejects.toMatchObject({
        message: expect.not.stringContaining("Another host"),
      });
      await configure();
      await fixture.drainAll();
      expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
    } finally {
      await oldServer.stop();
    }
  });

  test("that the provider rejects have one history entry for each record", async () => {
    await configure();
    const newRecord = await createRecord();
    await fixture.drainAll();
    cloud.control.addFault({ match: { operation: "secretsmanager.*" }, action: { kind: "fail", status: 401 } });
    for (let ticks = 0; ticks < 3; ticks++) {
      await fixture.makeDue(newRecord);
      await fixture.drainAll();
    }
    const { failure, failedRuns } = await fixture.sync.get(newRecord.recordId);
    expect([failure, failedRuns]).toMatchObject([{ code: "badCredentials", side: "target" }, 3]);
    expect(await fixture.historyKinds(newRecord.recordId)).toEqual(["failed", "created"]);
  });

  test("whose save crashed before its message still start the records", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    await fixture.sync.configurations.remove("aws", etag, caller);
    const newRecord = await createRecord();
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ failure: { code: "notConfigured" } });
    const uninterrupted = { taken: 0 };
    const given = { ...key, region: REGION };
    await fixture.instance(uninterrupted).configurations.save("aws", given, undefined, caller);
    fixture.messages.splice(0);
    // The last two steps are the message after the save and the entry in the audit log. The crash comes before the message.
    const crashing = { taken: 0, crashAt: uninterrupted.taken - 1, when: "before" as const };
    const { etag: saved } = (await fixture.sync.configurations.find("aws"))!;
    await expect(fixture.instance(crashing).configurations.save("aws", given, saved, caller)).rejects.toMatchObject({
      name: "SimulatedCrash",
    });
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
  });

  test("are changed by only one of two concurrent requests with the same ETag", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    const change = () =>
      save({ ...key, region: REGION }, etag).then(
        () => "saved",
        (error: unknown) => (error as Problem).code,
      );
    expect((await Promise.all([change(), change()])).sort()).toEqual(["preconditionFailed", "saved"]);
  });

  test("that are missing fail the records, which run when the provider is configured", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    expect(await problemOf(fixture.sync.configurations.remove("aws", '"stale"', caller))).toEqual([
      "preconditionFailed",
      undefined,
    ]);
    await fixture.sync.configurations.remove("aws", etag, caller);
    const { recordId, targetName } = await createRecord();
    expect(await fixture.runAndGet(recordId)).toMatchObject({ failure: { code: "notConfigured", side: "service" } });
    await configure();
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(copyAt(targetName)).toBe("value-one");
  });

  test("that are no longer used are deleted from the key vault after a day", async () => {
    const storedSecrets = () =>
      cloud.control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.startsWith("sync-"));
    await configure();
    expect(storedSecrets().length).toBeGreaterThan(1);
    await fixture.passTime(DAY_MS + 1000);
    await fixture.sync.cleanUp(caller);
    expect(storedSecrets()).toHaveLength(1);
    const { recordId } = await createRecord();
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
  });

  test("are not used if another program changed their row, until the configuration is sent again", async () => {
    const { kubernetes } = cloud.control.providers.configurations();
    const cluster = { targetProvider: "kubernetes", targetService: "secret", targetRegion: undefined };
    const configureCluster = () => fixture.sync.configurations.save("kubernetes", { ...kubernetes }, undefined, caller);
    const client = TableClient.fromConnectionString(fixture.connectionString, "Sync", {
      allowInsecureConnection: true,
    });
    /**
     * Changes the address in the row and removes the reference to the secret, which would bind the secret to the old address.
     */
    async function tamper() {
      const { secret_json: _, ...row } = await client.getEntity<Record<string, string>>("sync", "p|kubernetes");
      const settings_json = JSON.stringify({ ...JSON.parse(row.settings_json!), namespace: "of-a-stranger" });
      await client.updateEntity({ ...row, settings_json, partitionKey: "sync", rowKey: "p|kubernetes" }, "Replace");
    }
    await configureCluster();
    const { recordId } = await fixture.createRecord({ ...cluster, targetName: "bait" });
    await tamper();
    cloud.control.resetCounts();
    const failed = await fixture.runAndGet(recordId);
    expect(failed).toMatchObject({
      failure: { code: "notConfigured", remedy: expect.stringContaining("send the configuration again") },
    });
    expect(Object.keys(cloud.control.counts()).filter((name) => name.startsWith("kubernetes."))).toEqual([]);
    expect(await problemOf(fixture.sync.configurations.find("kubernetes"))).toEqual(["conflict", undefined]);
    expect((await fixture.sync.configurations.all()).map(({ provider }) => provider)).not.toContain("kubernetes");
    await configureCluster();
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    await tamper();
    await fixture.sync.configurations.remove("kubernetes", undefined, caller);
    expect(await problemOf(fixture.sync.configurations.remove("kubernetes", undefined, caller))).toEqual([
      "notFound",
      undefined,
    ]);
  });

  test.each([
    ["kubernetes", "secret", "namespace", "a namespace it must not see", "another-team"],
    ["hashicorp", "kv", "mount", "an empty mount", "team-kv"],
  ] as const)("of %s %s with another %s write nothing there: %s", async (id, service, member, _, otherValue) => {
    const configuration = cloud.control.providers.configurations()[id]!;
    const originalValue = configuration[member] ?? "secret";
    const save = (value: unknown) =>
      fixture.sync.configurations.save(id, { ...configuration, [member]: value }, undefined, caller);
    await save(originalValue);
    const target = { targetProvider: id, targetService: service, targetRegion: undefined };
    const newRecord = await fixture.createRecord({ ...target, targetName: fixture.unusedName("placed") });
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
    await save(otherValue);
    await fixture.makeDue(newRecord);
    cloud.control.resetCounts();
    const failing = await fixture.runAndGet(newRecord.recordId);
    expect(failing).toMatchObject({ state: "failing", failure: { code: "otherPlace" } });
    expect(failing.failure!.remedy).toContain(`${member} was "${originalValue}"`);
    const written = Object.keys(cloud.control.counts()).filter((name) => /^(kubernetes|kv)\.(?!get|read)/.test(name));
    expect(written).toEqual([]);
    expect(await problemOf(fixture.sync.remove(newRecord.recordId, true, undefined, caller))).toEqual([
      "conflict",
      undefined,
    ]);
    await save(originalValue);
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.historyKinds(newRecord.recordId)).toEqual(["recovered", "failed", "created"]);
  });

  test("in a configuration that names the default mount explicitly keep their targets", async () => {
    const { hashicorp } = cloud.control.providers.configurations();
    await fixture.sync.configurations.save("hashicorp", { ...hashicorp, mount: undefined }, undefined, caller);
    const newRecord = await fixture.createRecord({
      targetProvider: "hashicorp",
      targetService: "kv",
      targetRegion: undefined,
      targetName: fixture.unusedName("app/placed"),
    });
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
    await fixture.sync.configurations.save("hashicorp", { ...hashicorp, mount: "secret" }, undefined, caller);
    await fixture.makeDue(newRecord);
    expect(await fixture.runAndGet(newRecord.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.historyKinds(newRecord.recordId)).toEqual(["created"]);
  });

  test("of an unknown provider are rejected", async () => {
    expect(await problemOf(fixture.sync.configurations.save("toString", {}, undefined, caller))).toEqual([
      "notFound",
      undefined,
    ]);
  });
});

describe("a copy in another cloud", () => {
  test("is checked and restored without reading the source's value", async () => {
    await configure();
    const newRecord = await createRecord();
    const { recordId, targetName } = await fixture.runAndGet(newRecord.recordId);
    cloud.control.resetCounts();
    await fixture.makeDue(newRecord);
    await fixture.drainAll();
    const idle = cloud.control.counts();
    expect([idle["secretsmanager.describeSecret"], idle["secretsmanager.getSecretValue"]]).toEqual([1, undefined]);
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: SOURCE })).toEqual([]);
    cloud.control.providers.aws.secretsManager.operation(REGION, "PutSecretValue", {
      SecretId: targetName,
      SecretString: "by-others",
      ClientRequestToken: "by-others".padEnd(36, "x"),
    });
    await fixture.makeDue(newRecord);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(copyAt(targetName)).toBe("value-one");
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: SOURCE })).toEqual([]);
    expect(await fixture.historyKinds(recordId)).toEqual(["mended", "created"]);
  });

  test("is restored if it was deleted, and is deleted only recoverably", async () => {
    await configure();
    const newRecord = await createRecord();
    const { recordId, targetName } = await fixture.runAndGet(newRecord.recordId);
    cloud.control.providers.aws.secretsManager.operation(REGION, "DeleteSecret", { SecretId: targetName });
    await fixture.makeDue(newRecord);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(copyAt(targetName)).toBe("value-one");
    await fixture.sync.remove(recordId, true, undefined, caller);
    expect(copyAt(targetName)).toBeUndefined();
    const again = await fixture.createRecord({ ...awsTarget, targetName, adopt: true });
    expect(await fixture.runAndGet(again.recordId)).toMatchObject({ state: "inSync" });
  });
});
