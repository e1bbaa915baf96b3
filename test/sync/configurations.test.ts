import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import { providerView } from "../../shared/sync/api.ts";
import { CONFIGURED_QUEUE } from "../../shared/sync/record.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, SOURCE } from "./sync-fixture.ts";

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
  ({ cloud } = await liveIn({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
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
  await fixture.clear();
});

const save = (given: Record<string, unknown>, etag?: string) =>
  fixture.sync.configurations.save("aws", given, etag, caller);
const configure = () => save({ ...key, region: REGION });
const aws = { targetProvider: "aws", targetService: "secretsmanager", targetRegion: REGION };
const record = async () => await fixture.record({ ...aws, targetName: fixture.fresh("app/copy") });
const valueAt = (name: string) => cloud.control.providers.aws.secretsManager.value(REGION, name);

async function problemOf(work: Promise<unknown>): Promise<[string, string | undefined]> {
  const error = await work.then(
    () => new Error("It succeeded."),
    (reason: unknown) => reason,
  );
  if (!(error instanceof Problem)) throw error;
  for (const secret of Object.values(key)) expect(JSON.stringify(error.document("1"))).not.toContain(secret);
  return [error.code, error.errors?.[0]?.path];
}

async function awsCalls(work: () => Promise<unknown>): Promise<Record<string, number>> {
  cloud.control.resetCounts();
  await work();
  const counts = Object.entries(cloud.control.counts());
  return Object.fromEntries(counts.filter(([name]) => /^(secretsmanager|ssm)\./.test(name)));
}

describe("a provider's credentials", () => {
  test("are tried without side effect, kept in the service's own key vault, and never given out", async () => {
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
    const everything = [
      await fixture.rows(),
      JSON.stringify([fixture.events, fixture.logged, fixture.messages]),
    ].join();
    for (const secret of Object.values(key)) expect(everything).not.toContain(secret);
    const kept = cloud.control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.startsWith("sync-"));
    expect(kept.map(({ name }) => cloud.control.secretValue(SERVICE_VAULT, name))).toContainEqual(JSON.stringify(key));
  });

  test("are announced by name after they are saved, at once and again later in case the first message was lost", async () => {
    await configure();
    const at = fixture.clock.now().getTime();
    const sentMessages = fixture.messages.filter(({ queue }) => queue === CONFIGURED_QUEUE);
    expect(sentMessages.map(({ message, visibleAt }) => [message, visibleAt > at])).toEqual([
      [{ provider: "aws" }, true],
      [{ provider: "aws" }, false],
    ]);
  });

  test("that don't work are rejected, and the saved ones stay", async () => {
    await configure();
    const wrong = { ...key, secretAccessKey: "w".repeat(40), region: REGION };
    expect(await problemOf(save(wrong))).toEqual(["invalidRequest", "body"]);
    expect(await problemOf(save({ region: "../evil", ...key }))).toEqual(["invalidRequest", "body.region"]);
    expect(await problemOf(save({ accessKeyId: key.accessKeyId, region: REGION }))).toEqual([
      "invalidRequest",
      "body.secretAccessKey",
    ]);
    expect(await problemOf(save({ ...key, region: REGION, other: 1 }))).toEqual(["invalidRequest", "body.other"]);
    const made = await record();
    expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
  });

  test("that are saved go to no other address, and no packet leaves", async () => {
    await configure();
    const calls = await awsCalls(async () => {
      expect(await problemOf(save({ region: "us-east-1" }))).toEqual(["invalidRequest", "body.accessKeyId"]);
    });
    expect(calls).toEqual({});
    const ends = new Date(fixture.clock.now().getTime() + 20 * DAY_MS).toISOString();
    expect(await save({ region: REGION, expiresOn: ends })).toMatchObject({ expiresOn: ends });
  });

  test("are reported before they expire", async () => {
    const soon = async () => {
      const found = [];
      const by = new Date(fixture.clock.now().getTime() + 30 * DAY_MS);
      for await (const one of fixture.sync.configurations.expiring(by)) found.push(one);
      return found;
    };
    const at = (days: number) => new Date(fixture.clock.now().getTime() + days * DAY_MS).toISOString();
    await save({ ...key, region: REGION, expiresOn: at(20) });
    expect(await soon()).toMatchObject([{ name: "Amazon Web Services" }]);
    await save({ ...key, region: REGION, expiresOn: at(40) });
    expect(await soon()).toEqual([]);
    await save({ ...key, region: REGION });
    expect(await soon()).toEqual([]);
  });

  test("keep their end until it is taken away or they change", async () => {
    const ends = new Date(fixture.clock.now().getTime() + 20 * DAY_MS).toISOString();
    await save({ ...key, region: REGION, expiresOn: ends });
    expect(await save({ region: REGION })).toMatchObject({ expiresOn: ends });
    expect(await save({ region: REGION, expiresOn: null })).not.toHaveProperty("expiresOn");
    expect(await save({ region: REGION })).not.toHaveProperty("expiresOn");
    await save({ region: REGION, expiresOn: ends });
    expect(await save({ ...key, region: REGION })).not.toHaveProperty("expiresOn");
  });

  test("that the provider refuses are not tried again until they change", async () => {
    await configure();
    const records = [await record(), await record()];
    await fixture.drainAll();
    for (const { targetName } of records) expect(valueAt(targetName)).toBe("value-one");
    cloud.control.addFault({ match: { operation: "secretsmanager.*" }, action: { kind: "fail", status: 401 } });
    const refused = await awsCalls(async () => {
      await fixture.dueAgain(records[0]!);
      await fixture.drainAll();
    });
    const tried = Object.values(refused).reduce((sum, count) => sum + count, 0);
    for (const { recordId } of records) {
      expect(await fixture.sync.get(recordId)).toMatchObject({ state: "failing", failure: { code: "badCredentials" } });
    }
    cloud.control.clearFaults();
    const left = await awsCalls(async () => {
      for (let ticks = 0; ticks < 3; ticks++) {
        await fixture.dueAgain(records[0]!);
        await fixture.drainAll();
      }
    });
    expect([tried, left]).toEqual([1, {}]);
    const view = providerView("aws", await fixture.sync.configurations.find("aws"));
    expect(view.refusedAt).not.toBeNull();
    await configure();
    await fixture.drainAll();
    for (const { recordId } of records) expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
  });

  test("that the provider rejects are reported once for each record", async () => {
    await configure();
    const made = await record();
    await fixture.drainAll();
    cloud.control.addFault({ match: { operation: "secretsmanager.*" }, action: { kind: "fail", status: 401 } });
    for (let ticks = 0; ticks < 3; ticks++) {
      await fixture.dueAgain(made);
      await fixture.drainAll();
    }
    const { failure, failedRuns } = await fixture.sync.get(made.recordId);
    expect([failure, failedRuns]).toMatchObject([{ code: "badCredentials", side: "target" }, 3]);
    expect(await fixture.kinds(made.recordId)).toEqual(["failed", "created"]);
  });

  test("whose save was interrupted start the records nevertheless", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    await fixture.sync.configurations.remove("aws", etag, caller);
    const made = await record();
    expect(await fixture.settled(made.recordId)).toMatchObject({ failure: { code: "notConfigured" } });
    const whole = { taken: 0 };
    const given = { ...key, region: REGION };
    await fixture.instance(whole).configurations.save("aws", given, undefined, caller);
    fixture.messages.splice(0);
    // The last two steps are the message and the entry in the audit log.
    const crashing = { taken: 0, crashAt: whole.taken - 1, when: "before" as const };
    const { etag: saved } = (await fixture.sync.configurations.find("aws"))!;
    await expect(fixture.instance(crashing).configurations.save("aws", given, saved, caller)).rejects.toMatchObject({
      name: "SimulatedCrash",
    });
    expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
  });

  test("are changed by one of two who saw the same state", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    const change = () =>
      save({ ...key, region: REGION }, etag).then(
        () => "saved",
        (error: unknown) => (error as Problem).code,
      );
    expect((await Promise.all([change(), change()])).sort()).toEqual(["preconditionFailed", "saved"]);
  });

  test("that are missing fail the records, which run once they are given", async () => {
    await configure();
    const { etag } = (await fixture.sync.configurations.find("aws"))!;
    expect(await problemOf(fixture.sync.configurations.remove("aws", '"stale"', caller))).toEqual([
      "preconditionFailed",
      undefined,
    ]);
    await fixture.sync.configurations.remove("aws", etag, caller);
    const { recordId, targetName } = await record();
    expect(await fixture.settled(recordId)).toMatchObject({ failure: { code: "notConfigured", side: "service" } });
    await configure();
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(valueAt(targetName)).toBe("value-one");
  });

  test("that nothing names any more leave the key vault after a day", async () => {
    const kept = () => cloud.control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.startsWith("sync-"));
    await configure();
    expect(kept().length).toBeGreaterThan(1);
    await fixture.pass(DAY_MS + 1000);
    await fixture.sync.cleanUp(caller);
    expect(kept()).toHaveLength(1);
    const { recordId } = await record();
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
  });

  test("are not used after another program wrote the row, until they are sent again", async () => {
    const { kubernetes } = cloud.control.providers.configurations();
    const cluster = { targetProvider: "kubernetes", targetService: "secret", targetRegion: undefined };
    const configureCluster = () => fixture.sync.configurations.save("kubernetes", { ...kubernetes }, undefined, caller);
    const client = TableClient.fromConnectionString(fixture.connectionString, "Sync", {
      allowInsecureConnection: true,
    });
    /** Without its secret nothing would tie the row to an address. */
    async function tamper() {
      const { secret_json: _, ...row } = await client.getEntity<Record<string, string>>("sync", "p|kubernetes");
      const settings_json = JSON.stringify({ ...JSON.parse(row.settings_json!), namespace: "of-a-stranger" });
      await client.updateEntity({ ...row, settings_json, partitionKey: "sync", rowKey: "p|kubernetes" }, "Replace");
    }
    await configureCluster();
    const { recordId } = await fixture.record({ ...cluster, targetName: "bait" });
    await tamper();
    cloud.control.resetCounts();
    const failed = await fixture.settled(recordId);
    expect(failed).toMatchObject({
      failure: { code: "notConfigured", remedy: expect.stringContaining("send the configuration again") },
    });
    expect(Object.keys(cloud.control.counts()).filter((name) => name.startsWith("kubernetes."))).toEqual([]);
    expect(await fixture.sync.configurations.find("kubernetes")).toBeUndefined();
    expect((await fixture.sync.configurations.all()).map(({ provider }) => provider)).not.toContain("kubernetes");
    await configureCluster();
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
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
  ] as const)(
    "of %s %s that lead to another %s leave alone what lies there: %s",
    async (id, service, member, _, other) => {
      const known = cloud.control.providers.configurations()[id]!;
      const before = known[member] ?? "secret";
      const save = (place: unknown) =>
        fixture.sync.configurations.save(id, { ...known, [member]: place }, undefined, caller);
      await save(before);
      const target = { targetProvider: id, targetService: service, targetRegion: undefined };
      const made = await fixture.record({ ...target, targetName: fixture.fresh("placed") });
      expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
      await save(other);
      await fixture.dueAgain(made);
      cloud.control.resetCounts();
      const moved = await fixture.settled(made.recordId);
      expect(moved).toMatchObject({ state: "failing", failure: { code: "otherPlace" } });
      expect(moved.failure!.remedy).toContain(`${member} was "${before}"`);
      const written = Object.keys(cloud.control.counts()).filter((name) => /^(kubernetes|kv)\.(?!get|read)/.test(name));
      expect(written).toEqual([]);
      expect(await problemOf(fixture.sync.remove(made.recordId, true, undefined, caller))).toEqual([
        "conflict",
        undefined,
      ]);
      await save(before);
      expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
      expect(await fixture.kinds(made.recordId)).toEqual(["recovered", "failed", "created"]);
    },
  );

  test("that name the same place differently keep their targets", async () => {
    const { hashicorp } = cloud.control.providers.configurations();
    await fixture.sync.configurations.save("hashicorp", { ...hashicorp, mount: undefined }, undefined, caller);
    const made = await fixture.record({
      targetProvider: "hashicorp",
      targetService: "kv",
      targetRegion: undefined,
      targetName: fixture.fresh("app/placed"),
    });
    expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
    await fixture.sync.configurations.save("hashicorp", { ...hashicorp, mount: "secret" }, undefined, caller);
    await fixture.dueAgain(made);
    expect(await fixture.settled(made.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.kinds(made.recordId)).toEqual(["created"]);
  });

  test("of a provider that there is none of are refused", async () => {
    expect(await problemOf(fixture.sync.configurations.save("toString", {}, undefined, caller))).toEqual([
      "notFound",
      undefined,
    ]);
  });
});

describe("a copy in another cloud", () => {
  test("reads no value if nothing changed, and is restored without one", async () => {
    await configure();
    const made = await record();
    const { recordId, targetName } = await fixture.settled(made.recordId);
    cloud.control.resetCounts();
    await fixture.dueAgain(made);
    await fixture.drainAll();
    const idle = cloud.control.counts();
    expect([idle["secretsmanager.describeSecret"], idle["secretsmanager.getSecretValue"]]).toEqual([1, undefined]);
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: SOURCE })).toEqual([]);
    cloud.control.providers.aws.secretsManager.operation(REGION, "PutSecretValue", {
      SecretId: targetName,
      SecretString: "by-others",
      ClientRequestToken: "by-others".padEnd(36, "x"),
    });
    await fixture.dueAgain(made);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(valueAt(targetName)).toBe("value-one");
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: SOURCE })).toEqual([]);
    expect(await fixture.kinds(recordId)).toEqual(["mended", "created"]);
  });

  test("is restored in its recovery window, never deleted by force", async () => {
    await configure();
    const made = await record();
    const { recordId, targetName } = await fixture.settled(made.recordId);
    cloud.control.providers.aws.secretsManager.operation(REGION, "DeleteSecret", { SecretId: targetName });
    await fixture.dueAgain(made);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(valueAt(targetName)).toBe("value-one");
    await fixture.sync.remove(recordId, true, undefined, caller);
    expect(valueAt(targetName)).toBeUndefined();
    const again = await fixture.record({ ...aws, targetName, adopt: true });
    expect(await fixture.settled(again.recordId)).toMatchObject({ state: "inSync" });
  });
});
