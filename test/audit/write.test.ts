import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { intervalOf, timeOf } from "../../shared/audit/interval.ts";
import { bornMark, entriesPartition, isMark, openMark } from "../../shared/audit/rows.ts";
import { AnyRow, by, event, openRoom, page, type Room, settableClock } from "./support.ts";

const accounts = Array.from({ length: 12 }, (_, index) => `write${index}`);
let azurite: Azurite;
let used = 0;
beforeAll(async () => {
  azurite = await startAzurite({ accounts });
});
afterAll(() => azurite.stop());
const open = (): Room => openRoom(azurite.connectionString(accounts[used++]));

/** The marks and entries of the interval that an instant lies in. */
async function interval(room: Room, instant: string) {
  const start = intervalOf(Date.parse(instant));
  const keys: string[] = [];
  for await (const rows of room.tables.pages(AnyRow, { partitionKey: entriesPartition(start) })) {
    keys.push(...rows.map(({ rowKey }) => rowKey));
  }
  return {
    born: keys.includes(bornMark(start)),
    open: keys.includes(openMark(start)),
    entries: keys.filter((key) => !isMark(key) && key.startsWith(timeOf(start))).length,
  };
}

test("an entry says who did what, from where, in which request, to what", async () => {
  const { audit } = open();
  await audit.append(event());
  const { items } = await audit.list({}, page());
  expect(items).toEqual([
    {
      id: expect.stringMatching(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/),
      occurredAt: "2026-11-21T10:00:00.000Z",
      eventType: "settings.changed",
      outcome: "success",
      actor: "ada",
      address: "203.0.113.7",
      requestId: "req-1",
      target: { type: "setting", id: "criticalExpiryDays" },
      before: { criticalExpiryDays: 7 },
      after: { criticalExpiryDays: 5 },
      count: 1,
    },
  ]);
});

test("no secret enters the log, however deep and however its name is written", async () => {
  const { audit } = open();
  await audit.append(
    event({
      before: { password: "planted-1", nested: [{ Client_Secret: "planted-2" }] },
      after: { secretAccessKey: "planted-3", "access-token": "planted-4", region: "eu-west-1" },
      details: {
        webhookUrl: "https://planted-5",
        secretId: "s-1",
        secrets: 12,
        password: true,
        connectionString: null,
      },
    }),
  );
  const [entry] = (await audit.list({}, page())).items;
  expect(JSON.stringify(entry)).not.toContain("planted");
  expect(entry).toMatchObject({
    before: { password: "[redacted]", nested: [{ Client_Secret: "[redacted]" }] },
    after: { secretAccessKey: "[redacted]", region: "eu-west-1" },
    details: { secretId: "s-1", secrets: 12, password: true, connectionString: null },
  });
});

test("details that are too large are left out and said to be", async () => {
  const { audit } = open();
  await audit.append(event({ details: { text: "x".repeat(20_000) } }));
  expect((await audit.list({}, page())).items[0]!.details).toEqual({ omitted: "20011 characters of JSON" });
});

test("repeats of one refusal within a minute are one entry with a count, over all instances", async () => {
  const room = open();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  const other = room.instance();
  await Promise.all([...Array(20)].flatMap(() => [room.audit.refused(refusal), other.refused(refusal)]));
  room.clock.set("2026-11-21T10:00:30Z");
  await other.refused(refusal);
  const sameMinute = await room.audit.list({}, page());
  expect(sameMinute.items).toHaveLength(1);
  expect(sameMinute.items[0]).toMatchObject({ count: 41, lastOccurredAt: "2026-11-21T10:00:30.000Z" });

  room.clock.set("2026-11-21T10:01:00Z");
  await room.audit.refused(refusal);
  await room.audit.refused(event({ ...refusal, target: { type: "endpoint", id: "another" } }));
  expect((await room.audit.list({}, page())).items.map(({ count }) => count)).toEqual([1, 1, 41]);
});

test("a refusal that is repeated after its interval was sealed is a new entry", async () => {
  const room = open();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  const slow = room.instance({ clock: settableClock("2026-11-21T10:00:00Z") });
  await slow.refused(refusal);
  room.clock.set("2026-11-21T10:12:00Z");
  await room.audit.seal();
  await slow.refused(refusal);
  const { items } = await room.audit.list({}, page());
  expect(items.map(({ occurredAt, count }) => [occurredAt, count])).toEqual([
    ["2026-11-21T10:10:00.000Z", 1],
    ["2026-11-21T10:00:00.000Z", 1],
  ]);
  expect((await room.audit.verify({})).findings).toEqual([]);
});

test("a writer whose clock lags behind the sealing takes the first interval that is still open", async () => {
  const room = open();
  await room.audit.append(by("ada"));
  room.clock.set("2026-11-21T10:35:00Z");
  await room.audit.seal();
  await room.instance({ clock: settableClock("2026-11-21T10:02:00Z") }).append(by("late"));
  expect((await room.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:30:00.000Z");
  expect(await interval(room, "2026-11-21T10:00:00Z")).toEqual({ born: true, open: false, entries: 1 });
  expect(await interval(room, "2026-11-21T10:30:00Z")).toEqual({ born: true, open: true, entries: 1 });
});

test("sealing an interval that never was born keeps it from being born", async () => {
  const room = open();
  await room.audit.append(by("ada"));
  room.clock.set("2026-11-21T10:22:00Z");
  await room.audit.seal();
  expect(await interval(room, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  await room.instance({ clock: settableClock("2026-11-21T10:12:00Z") }).append(by("late"));
  expect(await interval(room, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  expect((await room.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:20:00.000Z");
});

test("200 concurrent writers across a seal lose no entry and leave none unsealed", async () => {
  const room = open();
  const instances = [room.audit, room.instance(), room.instance(), room.instance()];
  const slowClock = settableClock("2026-11-21T10:09:59.000Z");
  instances.push(room.instance({ clock: slowClock }));
  room.clock.set("2026-11-21T10:09:59.000Z");
  await room.audit.append(by("first"));
  const writers = [...Array(200)].map(async (_, index) => {
    if (index === 60) room.clock.set("2026-11-21T10:11:30.000Z");
    if (index === 70 || index === 75) await room.instance().seal();
    await instances[index % instances.length]!.append(by(`writer-${index}`));
  });
  await Promise.all(writers);
  room.clock.set("2026-11-21T10:40:00Z");
  await room.audit.seal();

  const verified = await room.audit.verify({});
  expect(verified).toMatchObject({ intact: true, entries: 201 });
  const { items } = await room.audit.list({}, page({ limit: 1000 }));
  expect(new Set(items.map(({ actor }) => actor)).size).toBe(201);
  // The slow instance's entries were refused by the sealed interval and stand in the next one.
  expect((await interval(room, "2026-11-21T10:00:00Z")).open).toBe(false);
  expect((await interval(room, "2026-11-21T10:10:00Z")).entries).toBeGreaterThan(0);
});
