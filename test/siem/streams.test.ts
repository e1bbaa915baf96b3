import { createHmac } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createStreamNotices } from "../../shared/alerts/stream-notices.ts";
import { eventSchema } from "../../shared/alerts/webhook-documents.ts";
import { verifyStream } from "../../shared/audit/verify/verify-stream.ts";
import { checkOfId } from "../../shared/compliance/checks/all.ts";
import { NewViolationRows, newViolationsKey, STATE } from "../../shared/compliance/compliance-rows.ts";
import { packNewViolations, packResolvedViolations } from "../../shared/compliance/packed-results.ts";
import { progressKey, STREAMS, Streams } from "../../shared/siem/stream.ts";
import { schemaProblems } from "../alerts/payload-schemas.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  caller,
  type Fixture,
  numbersOf,
  openFixture,
  type Receiver,
  RULE,
  startReceiver,
  withoutDuplicates,
} from "./stream-fixture.ts";

// Audit streams to receivers that fail, are slow and restart, and workers that crash: every event arrives, in order.

let storage: MovedStorage;
let cloud: Cloud;
let fixture: Fixture;
let receiver: Receiver;

beforeAll(async () => {
  storage = await startMovedStorage(["streams"]);
  ({ cloud } = await startTestCloud({ company: "small" }));
  fixture = openFixture({ cloud, connectionString: storage.azurite.connectionString("streams") });
  receiver = await startReceiver();
  // The first digests.
  await fixture.append(1);
  await fixture.seal();
});
afterAll(async () => {
  await receiver?.stop();
  await cloud?.stop();
  await storage?.stop();
});
afterEach(async () => {
  cloud.control.clearFaults();
  receiver.batches.length = 0;
  Object.assign(receiver, { status: 202, headers: {} });
  await fixture.removeAll();
});

const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, index) => first + index);
const createWebhook = () => fixture.create({ destination: "webhook", webhookUrl: receiver.url });

describe("each destination receives every entry in order, and the digests", () => {
  test("a webhook gets signed batches of CloudEvents", async () => {
    const { stream, webhookSecret } = await createWebhook();
    const first = (await fixture.append(3)) - 2;
    await fixture.seal();
    const last = await fixture.append(2);
    await fixture.seal();
    await fixture.runAll();
    const events = receiver.events();
    expect(numbersOf(events)).toEqual(range(first, last));
    expect(events.at(-1)).toMatchObject({ type: "lifecycle.audit.digest", specversion: "1.0" });
    expect(events.map(({ sequence }) => sequence)).toEqual(events.map(({ sequence }) => sequence).sort());
    expect(verifyStream(events, fixture.publicKeys)).toMatchObject({ verdict: "intact", findings: [] });
    for (const event of events) expect(schemaProblems(eventSchema(event.type)!, event), event.type).toEqual([]);
    const { body, headers } = receiver.batches[0]!;
    expect(headers["content-type"]).toMatch(/^application\/cloudevents-batch\+json/);
    const key = Buffer.from(webhookSecret!.slice("whsec_".length), "base64");
    const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
    const signature = createHmac("sha256", key).update(signed).digest("base64");
    expect(headers["webhook-signature"]).toBe(`v1,${signature}`);
    const state = await fixture.stateOf(stream.streamId);
    expect(state).toMatchObject({ state: "active", lag: { entries: 0, since: null }, progress: { failures: 0 } });
  });

  test("Event Hubs gets them under one partition key", async () => {
    const { stream } = await fixture.createHub();
    const first = (await fixture.append(40, { text: "x".repeat(15_000) })) - 39;
    await fixture.seal();
    await fixture.runAll();
    const events = fixture.hubEvents(stream.streamId);
    expect(numbersOf(events)).toEqual(range(first, first + 39));
    expect(cloud.control.counts()["eventhubs.send"]).toBeGreaterThan(1);
    expect(verifyStream(events, fixture.publicKeys)).toMatchObject({ verdict: "intact", findings: [] });
  });

  test("Azure Monitor gets records, whose long entries continue in further columns", async () => {
    const { stream } = await fixture.create({
      destination: "logsIngestion",
      endpoint: fixture.ingestionEndpoint,
      ...RULE,
    });
    const first = (await fixture.append(3, { text: "ä".repeat(16_000) })) - 2;
    const before = await fixture.append(1, { one: "😀".repeat(7_000) });
    await fixture.seal();
    await fixture.runAll();
    const records = cloud.control.logsIngestion.records.filter(({ StreamId }) => StreamId === stream.streamId);
    const events = records.map(({ EventId, EventType, Sequence, Data, DataPart2 = "", DataPart3 = "" }) => ({
      id: EventId!,
      type: EventType!,
      sequence: Sequence!,
      data: JSON.parse(Data + DataPart2 + DataPart3) as Record<string, unknown>,
    }));
    expect(numbersOf(events)).toEqual(range(first, before));
    expect(records.find(({ Action }) => Action === "thing.changed")).toMatchObject({
      Actor: "ada",
      Outcome: "success",
    });
    expect(verifyStream(events, fixture.publicKeys)).toMatchObject({ verdict: "intact", findings: [] });
  });

  test("from the beginning of the log", async () => {
    const { stream } = await fixture.createHub({ from: "beginning" });
    await fixture.seal();
    await fixture.runAll();
    const numbers = numbersOf(fixture.hubEvents(stream.streamId));
    expect(numbers).toEqual(range(1, numbers.at(-1)!));
  });
});

test("the verification at the receiver finds a removed, a changed and an inserted entry, and a removed digest", async () => {
  const { stream } = await fixture.createHub();
  await fixture.append(3);
  await fixture.seal();
  await fixture.append(1);
  await fixture.seal();
  await fixture.seal();
  await fixture.runAll();
  const events = fixture.hubEvents(stream.streamId);
  const kindsWithout = (kept: typeof events) => {
    const { verdict, findings } = verifyStream(kept, fixture.publicKeys);
    return [verdict, ...findings.map(({ kind }) => kind)];
  };
  expect(kindsWithout(events)).toEqual(["intact"]);
  expect(kindsWithout([...events].reverse())).toEqual(["intact"]);
  const entry = events.find(({ type, data }) => type.endsWith("entry") && data.eventType === "thing.changed")!;
  expect(kindsWithout(events.filter((event) => event !== entry))).toEqual(["notIntact", "entryRemoved"]);
  const changed = { ...entry, data: { ...entry.data, actor: "eve" } };
  expect(kindsWithout(events.map((event) => (event === entry ? changed : event)))).toEqual([
    "notIntact",
    "entryChanged",
  ]);
  const inserted = { ...entry, id: "x", data: { ...entry.data, id: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A" } };
  expect(kindsWithout([...events, inserted])).toEqual(["notIntact", "entryInserted"]);
  const digests = events.filter(({ type }) => type.endsWith("digest"));
  expect(kindsWithout(events.filter((event) => event !== digests[1]))).toContain("digestMissing");
  expect(verifyStream(events, new Map()).findings[0]).toMatchObject({ kind: "digestUnverifiable" });
});

describe("sealed rows that another program changed are not sent", () => {
  const clientOf = (table: string) =>
    TableClient.fromConnectionString(storage.azurite.connectionString("streams"), table, {
      allowInsecureConnection: true,
    });
  /** Returns the row of the entry with this number. */
  async function rowOf(number: number) {
    for await (const row of clientOf("AuditEntries").listEntities<{ entry?: string }>())
      if (row.entry?.includes(`"target":{"id":"${number}","type":"thing"}`))
        return { partitionKey: row.partitionKey!, rowKey: row.rowKey!, entry: row.entry };
    throw new Error(`No row has the entry ${number}.`);
  }

  test.each(["changed", "removed", "inserted", "digest removed"])("%s", async (how) => {
    const { stream } = await fixture.createHub();
    const first = await fixture.append(1);
    await fixture.seal();
    await fixture.append(2);
    await fixture.seal();
    const client = clientOf("AuditEntries");
    const row = await rowOf(first + 1);
    const id = row.rowKey.slice(6);
    let restore: () => Promise<unknown> = () => client.upsertEntity(row, "Merge");
    if (how === "changed") {
      const whole = await client.getEntity(row.partitionKey, row.rowKey);
      restore = () => client.upsertEntity({ ...whole, ...row }, "Replace");
      await client.upsertEntity({ ...row, entry: row.entry.replace('"ada"', '"eve"') }, "Merge");
    } else if (how === "removed") {
      const whole = await client.getEntity(row.partitionKey, row.rowKey);
      restore = () => client.upsertEntity({ ...whole, ...row }, "Replace");
      await client.deleteEntity(row.partitionKey, row.rowKey);
    } else if (how === "inserted") {
      const planted = `${id.slice(0, -1)}${id.endsWith("0") ? "1" : "0"}`;
      const rowKey = row.rowKey.replace(id, planted);
      restore = () => client.deleteEntity(row.partitionKey, rowKey);
      await client.upsertEntity({ ...row, rowKey, entry: row.entry.replaceAll(id, planted) });
    } else {
      const digests = clientOf("AuditDigests");
      const interval = `${row.partitionKey.slice(0, 10)}T${row.rowKey.slice(0, 5)}Z`;
      const digest = await digests.getEntity("digests", interval);
      restore = () => digests.upsertEntity({ ...digest, partitionKey: "digests", rowKey: interval }, "Replace");
      // The newest digest would be written again.
      await fixture.seal();
      await digests.deleteEntity("digests", interval);
    }
    await fixture.runAll();
    // What was sealed before arrives. Nothing of the changed interval after the change does.
    const arrived = numbersOf(fixture.hubEvents(stream.streamId));
    expect(arrived[0]).toBe(first);
    expect(JSON.stringify(fixture.hubEvents(stream.streamId))).not.toContain('"eve"');
    expect(arrived.length).toBeLessThan(3);
    expect(verifyStream(fixture.hubEvents(stream.streamId), fixture.publicKeys).findings).toEqual([]);
    const state = await fixture.stateOf(stream.streamId);
    expect(state.state).toBe("broken");
    expect(state.error).toMatch(/by another program|not signed by this service/);
    const { notices } = createStreamNotices(fixture.streams, { clock: fixture.clock });
    const pages = notices("auditStreamFailing", new Date(0))[Symbol.asyncIterator]();
    const [pending] = (await pages.next()).value ?? [];
    expect(await pending!.notice()).toMatchObject({ urgency: "critical", why: state.error });
    await restore();
    fixture.clock.addMinutes(5);
    await fixture.runAll();
    expect(numbersOf(fixture.hubEvents(stream.streamId))).toEqual(range(first, first + 2));
    expect(await fixture.stateOf(stream.streamId)).toMatchObject({ state: "active", error: null });
  });
});

test("a receiver is told before its stream is paused, redirected or deleted; the audit log says whether it was", async () => {
  const { stream } = await createWebhook();
  await fixture.streams.change(stream.streamId, { name: "renamed" }, caller, undefined);
  await fixture.streams.change(stream.streamId, { webhookUrl: `${receiver.url}2` }, caller, undefined);
  await fixture.streams.change(stream.streamId, { enabled: false }, caller, undefined);
  await fixture.streams.change(stream.streamId, { enabled: true }, caller, undefined);
  receiver.status = 500;
  await fixture.streams.remove(stream.streamId, caller, undefined);
  const events = receiver.events();
  expect(events.map(({ type, data }) => [type, data])).toEqual([
    ["lifecycle.stream.stopping", { reason: "changed", actor: "admin" }],
    ["lifecycle.stream.stopping", { reason: "paused", actor: "admin" }],
  ]);
  for (const event of events) expect(schemaProblems(eventSchema(event.type)!, event)).toEqual([]);
  const page = { limit: 1, offset: 0, cursor: undefined };
  const { items } = await fixture.audit.list({ eventType: "auditStream.deleted" }, page);
  expect(items[0]!.details).toEqual({ receiverTold: false, reason: "The receiver returned 500." });
});

test("a running send stops before the next batch if the stream gets another receiver", async () => {
  const { stream } = await createWebhook();
  const other = await startReceiver();
  const first = (await fixture.append(60, { text: "x".repeat(15_000) })) - 59;
  await fixture.seal();
  receiver.afterBatch = async () => {
    receiver.afterBatch = undefined;
    await fixture.streams.change(stream.streamId, { webhookUrl: other.url }, caller, undefined);
  };
  await fixture.runAll();
  // The first batch, and the event that the stream stops.
  expect(receiver.batches).toHaveLength(2);
  expect(other.batches.length).toBeGreaterThan(0);
  expect([...numbersOf(receiver.events()), ...numbersOf(other.events())]).toEqual(range(first, first + 59));
  await other.stop();
});

test("a stream of a log that is no longer sealed is failing", async () => {
  const { stream } = await fixture.createHub();
  await fixture.seal();
  await fixture.runAll();
  expect(await fixture.stateOf(stream.streamId)).toMatchObject({ state: "active", failingSince: null });
  fixture.clock.addMinutes(45);
  expect(await fixture.stateOf(stream.streamId)).toMatchObject({
    state: "failing",
    error: expect.stringContaining("AUDIT_SIGNING_KEYS"),
    failingSince: expect.any(String),
  });
  await fixture.seal();
  await fixture.runAll();
  expect((await fixture.stateOf(stream.streamId)).state).toBe("active");
});

describe("a receiver", () => {
  test("that fails gets every event later, in order; the stream says why it waits", async () => {
    const { stream } = await createWebhook();
    receiver.status = 503;
    const first = (await fixture.append(2)) - 1;
    await fixture.seal();
    expect(await fixture.streams.run()).toBe(0);
    const failing = await fixture.stateOf(stream.streamId);
    expect(failing).toMatchObject({
      state: "failing",
      error: "The receiver returned 503.",
      lag: { entries: expect.any(Number), since: expect.any(String) },
      progress: { failures: 1 },
    });
    // Before the next attempt is due, nothing is sent.
    receiver.status = 202;
    expect(await fixture.streams.run()).toBe(0);
    receiver.status = 500;
    fixture.clock.addMinutes(2);
    await fixture.streams.run();
    const { progress } = await fixture.stateOf(stream.streamId);
    expect(progress).toMatchObject({ failures: 2, failingSince: failing.progress!.failingSince });
    expect(Date.parse(progress!.nextAttemptAt!) - fixture.clock.now().getTime()).toBe(2 * 60_000);
    receiver.status = 202;
    const last = await fixture.append(1);
    await fixture.seal();
    await fixture.runAll();
    expect(numbersOf(receiver.events())).toEqual(range(first, last));
    expect(await fixture.stateOf(stream.streamId)).toMatchObject({ state: "active", error: null });
    const { items } = await fixture.audit.list(
      { eventType: "auditStream.failing" },
      { limit: 10, offset: 0, cursor: undefined },
    );
    expect(items[0]).toMatchObject({
      target: { id: stream.streamId },
      details: { reason: "The receiver returned 503." },
    });
  });

  test("that names a time is not asked before, but at least every hour", async () => {
    const { stream } = await createWebhook();
    Object.assign(receiver, { status: 429, headers: { "retry-after": "600" } });
    await fixture.seal();
    await fixture.streams.run();
    const waitOf = async () => {
      const { progress } = await fixture.stateOf(stream.streamId);
      return (Date.parse(progress!.nextAttemptAt!) - fixture.clock.now().getTime()) / 1000;
    };
    expect(await waitOf()).toBe(600);
    receiver.headers = { "retry-after": "86400" };
    fixture.clock.addMinutes(11);
    await fixture.streams.run();
    expect(await waitOf()).toBe(3600);
    // A change of the stream ends the wait.
    await fixture.streams.change(stream.streamId, { enabled: true }, caller, undefined);
    receiver.status = 202;
    expect(await fixture.streams.run()).toBeGreaterThan(0);
  });

  test("that is slow, or closes the connection after it stored a batch, gets the batch again with the same IDs", async () => {
    const webhookUrl = cloud.controlUrl.replace("/control", "/sink/siem");
    const { stream } = await fixture.create({ destination: "webhook", webhookUrl });
    const first = (await fixture.append(2)) - 1;
    await fixture.seal();
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "hangAfter" }, times: 1 });
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "loseAnswer" }, times: 1 });
    for (let run = 0; run < 2; run++) {
      expect(await fixture.streams.run()).toBe(0);
      fixture.clock.addMinutes(5);
    }
    expect((await fixture.stateOf(stream.streamId)).error).toMatch(/^127\.0\.0\.1 was not reached/);
    await fixture.runAll();
    const requests = cloud.control.sinkRequests("siem");
    expect(new Set(requests.map(({ headers }) => headers["webhook-id"])).size).toBe(requests.length - 2);
    const events = requests.flatMap(({ body }) => JSON.parse(body));
    expect(numbersOf(withoutDuplicates(events))).toEqual([first, first + 1]);
  }, 60_000);

  test("that restarts gets every event", async () => {
    const { stream } = await createWebhook();
    const first = (await fixture.append(1)) - 0;
    await fixture.seal();
    await fixture.runAll();
    await receiver.stop();
    await fixture.append(1);
    await fixture.seal();
    await fixture.streams.run();
    expect((await fixture.stateOf(stream.streamId)).error).toMatch(/ECONNREFUSED/);
    await receiver.restart();
    fixture.clock.addMinutes(5);
    await fixture.runAll();
    expect(numbersOf(receiver.events())).toEqual([first, first + 1]);
  });

  test("without permission, or another rule, is named with the role that it needs", async () => {
    const { stream } = await fixture.createHub();
    const { stream: other } = await fixture.create({
      destination: "logsIngestion",
      endpoint: fixture.ingestionEndpoint,
      ...RULE,
      ruleId: "dcr-00000000000000000000000000000002",
    });
    await fixture.seal();
    cloud.control.addFault({ match: { operation: "eventhubs.send" }, action: { kind: "deny" } });
    await fixture.streams.run();
    expect((await fixture.stateOf(stream.streamId)).error).toContain("Azure Event Hubs Data Sender");
    expect((await fixture.stateOf(other.streamId)).error).toContain("does not exist");
  });
});

test("a worker that crashes at any step loses no event, and another worker sends the rest in order", async () => {
  const { stream } = await fixture.createHub();
  const first = (await fixture.append(1)) - 0;
  const steps = { taken: 0 };
  await fixture.seal();
  await fixture.instance(steps).run();
  const total = steps.taken;
  expect(total).toBeGreaterThan(4);
  for (let crashAt = 1; crashAt <= total; crashAt++) {
    for (const when of ["before", "after"] as const) {
      await fixture.append(2);
      await fixture.seal();
      const crash = await fixture
        .instance({ taken: 0, crashAt, when })
        .run()
        .catch((error: Error) => error);
      expect(crash).toBeInstanceOf(Error);
      // The lease of the crashed worker expires.
      await storage.move(61_000);
      await fixture.runAll();
      expect((await fixture.stateOf(stream.streamId)).lag).toEqual({ entries: 0, since: null });
    }
  }
  const events = fixture.hubEvents(stream.streamId);
  const last = await fixture.append(0);
  expect(events.length).toBeGreaterThan(withoutDuplicates(events).length);
  expect(numbersOf(withoutDuplicates(events))).toEqual(range(first, last));
  expect(verifyStream(events, fixture.publicKeys)).toMatchObject({ verdict: "intact" });
}, 120_000);

test("two workers at once send each event once", async () => {
  const { stream } = await fixture.createHub();
  await fixture.append(5);
  await fixture.seal();
  await Promise.all([fixture.instance().run(), fixture.instance().run(), fixture.instance().run()]);
  const events = fixture.hubEvents(stream.streamId);
  expect(withoutDuplicates(events)).toHaveLength(events.length);
});

test("violations that were opened and resolved are sent in order, ten minutes later", async () => {
  const { stream } = await fixture.createHub({ content: ["violations"] });
  const { code, severity } = checkOfId.get("secret-expired")!;
  const since = Date.parse("2026-11-20T00:00:00Z") / 1000;
  const vault = { name: "kv-One", vaultId: "", subscriptionId: "s" };
  const put = (attempt: string, opened: boolean) =>
    fixture.tables.put(
      NewViolationRows,
      STATE,
      newViolationsKey(fixture.clock.now().toISOString(), "kv-One", attempt, 0),
      {
        ...vault,
        items: packNewViolations(
          opened
            ? [
                [code, "One", since, {}],
                [code, "Two", since, {}],
              ]
            : [],
        ),
        ...(!opened && { resolved: packResolvedViolations([[code, "One", since]]) }),
      },
    );
  await put("a", true);
  fixture.clock.addMinutes(1);
  await put("b", false);
  expect(await fixture.streams.run()).toBe(0);
  fixture.clock.addMinutes(11);
  expect((await fixture.stateOf(stream.streamId)).lag).toMatchObject({ entries: 0, since: expect.any(String) });
  expect(await fixture.streams.run()).toBe(3);
  expect(await fixture.streams.run()).toBe(0);
  const events = fixture.hubEvents(stream.streamId);
  expect(events.map(({ type, data }) => [type, data.resourceId])).toEqual([
    ["lifecycle.violation.opened", "kv-one.secret.one"],
    ["lifecycle.violation.opened", "kv-one.secret.two"],
    ["lifecycle.violation.resolved", "kv-one.secret.one"],
  ]);
  expect(new Set(events.map(({ id }) => id)).size).toBe(3);
  for (const event of events) expect(schemaProblems(eventSchema(event.type)!, event)).toEqual([]);
  expect(events[0]!.data).toMatchObject({
    checkId: "secret-expired",
    severity,
    vaultName: "kv-One",
    subscriptionId: "s",
  });
});

test("changes that two attempts of an evaluation recorded have the same IDs; the sequence sorts them as they were sent", async () => {
  const { stream } = await fixture.createHub({ content: ["violations"] });
  const { code } = checkOfId.get("secret-expired")!;
  const since = Date.parse("2026-11-20T00:00:00Z") / 1000;
  const names = Array.from({ length: 12 }, (_, index) => `S${index}`);
  const at = fixture.clock.now().toISOString();
  for (const attempt of ["a", "b"])
    await fixture.tables.put(NewViolationRows, STATE, newViolationsKey(at, "kv-One", attempt, 0), {
      name: "kv-One",
      vaultId: "",
      subscriptionId: "s",
      items: packNewViolations(names.map((name) => [code, name, since, {}])),
    });
  fixture.clock.addMinutes(11);
  expect(await fixture.runAll()).toBe(24);
  const events = fixture.hubEvents(stream.streamId);
  expect(new Set(events.map(({ id }) => id)).size).toBe(12);
  const sequences = events.map(({ sequence }) => sequence);
  expect(sequences).toEqual([...new Set(sequences)].sort());
});

describe("a row that another program changed or removed", () => {
  const client = () =>
    TableClient.fromConnectionString(storage.azurite.connectionString("streams"), Streams.table, {
      allowInsecureConnection: true,
    });
  const rowKey = (streamId: string) => progressKey(streamId);

  test("stops the stream, which says so, and another stream continues", async () => {
    const { stream } = await fixture.createHub();
    const { stream: other } = await fixture.createHub();
    const { stream: third } = await fixture.createHub();
    const row = await client().getEntity(STREAMS, rowKey(stream.streamId));
    const audit = JSON.stringify({ interval: "2027-01-01T00:00Z", entries: 0 });
    await client().updateEntity(
      { ...row, partitionKey: STREAMS, rowKey: rowKey(stream.streamId), audit_json: audit },
      "Replace",
    );
    await client().deleteEntity(STREAMS, rowKey(third.streamId));
    await fixture.append(1);
    await fixture.seal();
    await fixture.runAll();
    expect(fixture.hubEvents(stream.streamId)).toEqual([]);
    expect(fixture.hubEvents(other.streamId)).not.toEqual([]);
    const states = await fixture.streams.states(await fixture.streams.all());
    expect(states.map(({ state }) => state)).toEqual(["broken", "active", "broken"]);
    expect(states[0]!.error).toContain("changed by another program");
    expect(states[2]!.error).toContain("removed by another program");
    // It can be deleted and created again.
    await fixture.streams.remove(stream.streamId, caller, undefined);
  });

  test("a stream whose own row was changed sends nothing, and can be deleted", async () => {
    const { stream } = await fixture.createHub();
    await client().updateEntity(
      { partitionKey: STREAMS, rowKey: `stream|${stream.streamId}`, eventHub: "evil" },
      "Merge",
    );
    await fixture.seal();
    await fixture.runAll();
    expect(fixture.hubEvents(stream.streamId)).toEqual([]);
    await expect(fixture.streams.get(stream.streamId)).rejects.toMatchObject({ code: "conflict" });
    await fixture.streams.remove(stream.streamId, caller, undefined);
    expect(await fixture.streams.all()).toEqual([]);
  });
});

test("URL and signing key are in the key vault only: not in rows, logs, errors or the audit log", async () => {
  const { stream, webhookSecret } = await createWebhook();
  receiver.status = 500;
  await fixture.append(1);
  await fixture.seal();
  await fixture.streams.run();
  await fixture.streams.test(stream.streamId, caller);
  const rotated = await fixture.streams.rotateSecret(stream.streamId, caller, undefined);
  const texts = [JSON.stringify(await fixture.stateOf(stream.streamId)), ...fixture.logged];
  for (const table of ["AuditStreams", "AuditEntries"]) {
    const rows = TableClient.fromConnectionString(storage.azurite.connectionString("streams"), table, {
      allowInsecureConnection: true,
    });
    for await (const row of rows.listEntities()) texts.push(JSON.stringify(row));
  }
  for (const secret of ["a-secret-path", "a-secret-token", webhookSecret!, rotated.webhookSecret!])
    expect(texts.filter((text) => text.includes(secret))).toEqual([]);
  // Messages are signed with both keys for a day.
  receiver.status = 202;
  fixture.clock.addMinutes(5);
  await fixture.runAll();
  expect(receiver.batches[0]!.headers["webhook-signature"]!.split(" ")).toHaveLength(2);
});

test("addresses outside of the cloud's domains, private addresses and missing members are rejected", async () => {
  const create = (given: Parameters<Fixture["create"]>[0]) => fixture.create(given).catch((error: unknown) => error);
  for (const given of [
    { destination: "eventHubs", endpoint: "https://evil.example", eventHub: "audit" },
    { destination: "eventHubs", endpoint: `${fixture.hubsEndpoint}/path`, eventHub: "audit" },
    { destination: "eventHubs", endpoint: fixture.hubsEndpoint },
    { destination: "logsIngestion", endpoint: fixture.ingestionEndpoint },
    { destination: "webhook" },
    { destination: "webhook", webhookUrl: "ftp://siem.acme.example" },
    { destination: "logsIngestion", endpoint: fixture.ingestionEndpoint, ...RULE, webhookUrl: receiver.url },
  ] as const)
    expect(await create(given)).toMatchObject({ code: "invalidRequest" });
  expect(await fixture.streams.all()).toEqual([]);
});

test("a new receiver gets a new signing key, and the stream continues where it stopped", async () => {
  const { stream } = await createWebhook();
  const first = await fixture.append(1);
  await fixture.seal();
  await fixture.runAll();
  const other = await startReceiver();
  const changed = await fixture.streams.change(stream.streamId, { webhookUrl: other.url }, caller, undefined);
  expect(changed.webhookSecret).toMatch(/^whsec_/);
  await fixture.append(1);
  await fixture.seal();
  await fixture.runAll();
  expect([numbersOf(receiver.events()), numbersOf(other.events())]).toEqual([[first], [first + 1]]);
  await other.stop();
});

test("a run costs requests for what is new, not for what exists", async () => {
  const proxy = await startTableProxy(storage.azurite.connectionString("streams"));
  try {
    const module = fixture.instance({ taken: 0 }, proxy.connectionString);
    const requestsOf = async () => {
      proxy.requests.length = 0;
      await module.run();
      return proxy.requests.length;
    };
    expect(await requestsOf()).toBe(1);
    await fixture.createHub({ content: ["audit", "violations"] });
    await fixture.createHub({ content: ["audit", "violations"] });
    await fixture.append(1);
    await fixture.seal();
    await module.run();
    // The streams, the keys of the log, the newest digest; for each stream its progress and the violations.
    expect(await requestsOf()).toBe(3 + 2 * 2);
    // An interval without entries: for each stream also the lease, keys, digest, violations, the stream, position and the end of the lease.
    await fixture.seal();
    expect(await requestsOf()).toBeLessThanOrEqual(3 + 2 * 9);
  } finally {
    await proxy.stop();
  }
});
