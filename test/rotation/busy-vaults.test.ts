import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault, FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openMatchingRoom } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/** Two vaults that hold an application's client secret; each is away for a moment at the wrong time. */
const SECOND = "kv-second";
const company: Company = {
  subscriptions: [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: SECOND }] },
  ],
};

let azurite: TestStorage;
let accounts = 0;
let live: Awaited<ReturnType<typeof liveIn>>;
let room: ReturnType<typeof openMatchingRoom>;
let app: ReturnType<(typeof room)["application"]>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 60 }, (_, index) => `busy${index}`));
  live = await liveIn({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(async () => {
  live.cloud.control.clearFaults();
  // The vault that never answers is waited for as long as this, three times.
  const limits = { firstWaitMs: 1, requestTimeoutMs: 2_000 };
  room = openMatchingRoom(live, azurite.connectionString(`busy${accounts++}`), limits);
  app = room.application();
  const second = room.copy(app, SECOND);
  await room.discover(app, second);
  await room.confirm(app, second);
});

const inBoth = [`${VAULT} planned`, `${SECOND} planned`];
const places = ({ publications }: RotationRecord) =>
  publications.map(({ vaultName, state }) => `${vaultName} ${state}`);
const begin = async () => await room.rotations.begin(room.requestFor(app), BOSS);
const ofVault = (vault: string, action: FaultAction): Fault => ({ match: { vault }, action });

const PASSING: [how: string, action: FaultAction][] = [
  ["answers 503", { kind: "fail", status: 503 }],
  ["answers 500", { kind: "fail", status: 500 }],
  ["is too busy", { kind: "throttle" }],
  ["cuts the connection", { kind: "reset" }],
  ["never answers", { kind: "hang" }],
  ["answers with a proxy's page", { kind: "garbage", as: "html" }],
];

const AWAY: [what: string, ...faults: Fault[]][] = [
  ...PASSING.map(([how, action]) => [`the first vault ${how}`, ofVault(VAULT, action)] as [string, Fault]),
  ...PASSING.slice(0, 5).map(
    ([how, action]) => [`the second vault ${how}`, ofVault(SECOND, action)] as [string, Fault],
  ),
  ["both vaults answer 503", ...[VAULT, SECOND].map((vault) => ofVault(vault, { kind: "fail", status: 503 }))] as [
    string,
    ...Fault[],
  ],
  ["Microsoft Graph answers 503", { match: { operation: "graph.*" }, action: { kind: "fail", status: 503 } }],
];

const unavailable = expect.objectContaining({
  code: "unavailable",
  status: 503,
  headers: { "Retry-After": expect.stringMatching(/^\d+$/) },
});

test.each(AWAY)("where %s, a plan is 503 and nothing begins; then the plan has both places", async (_, ...faults) => {
  for (const fault of faults) room.control.addFault(fault);
  await expect(begin()).rejects.toEqual(unavailable);
  expect(await room.rotationsOf(app.appId)).toEqual([]);
  room.control.clearFaults();
  const row = await begin();
  expect([places(row), row.notUpdated]).toEqual([inBoth, []]);
});

test("where the sign-in service gives no clear answer, a plan is 503 and nothing begins; then the plan is whole", async () => {
  const unproved = room.application();
  await room.discover(unproved);
  for (const action of [{ kind: "fail", status: 503 }, { kind: "reset" }, { kind: "garbage", as: "html" }] as const) {
    const fault = room.control.addFault({ match: { operation: "entra.token" }, action });
    await expect(room.rotations.begin(room.requestFor(unproved), BOSS)).rejects.toEqual(unavailable);
    room.control.removeFault(fault);
  }
  const row = await room.rotations.begin(room.requestFor(unproved), BOSS);
  expect(places(row)).toEqual([`${VAULT} planned`]);
});

test("an automatic rotation that meets a busy vault is retried, and its policy needs no attention", async () => {
  await room.policy(app.appId);
  for (const vault of [VAULT, SECOND]) room.control.addFault(ofVault(vault, { kind: "fail", status: 503 }));
  await expect(room.tick()).rejects.toMatchObject({ code: expect.stringMatching(/^(unreachable|unavailable)$/) });
  const { attention, nextCheckAt } = await room.policies.get(app.appId);
  expect([attention, nextCheckAt]).toEqual([undefined, undefined]);
  room.control.clearFaults();
  await room.tick();
  const [{ rotationId } = { rotationId: "" }] = await room.rotationsOf(app.appId);
  expect(places(await room.rotations.get(rotationId))).toEqual(inBoth);
});

describe("at the end of the overlap", () => {
  const overlapping = async () => {
    const { rotationId } = await begin();
    const { row } = await room.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    room.world.pass(Date.parse(row.overlapEndsAt!) - room.world.clock.now().getTime());
    return rotationId;
  };

  test.each<[what: string, fault: Fault]>([
    ["a vault answers 503", ofVault(SECOND, { kind: "fail", status: 503 })],
    ["Microsoft Graph answers 503", { match: { operation: "graph.*" }, action: { kind: "fail", status: 503 } }],
    ["the sign-in is unclear", { match: { operation: "entra.token" }, action: { kind: "fail", status: 503 } }],
  ])("if %s, the check is repeated within minutes without attention", async (_, fault) => {
    const rotationId = await overlapping();
    const before = room.world.clock.now().getTime();
    room.control.addFault(fault);
    const { row } = await room.world.run(rotationId, { until: ({ failures }) => failures === 3 });
    expect(row).toMatchObject({ status: "overlapping", needsConfirmation: false, reasons: [] });
    await expect(room.rotations.finish(rotationId, false, BOSS)).rejects.toEqual(unavailable);
    room.control.clearFaults();
    expect((await room.world.run(rotationId)).row).toMatchObject({ status: "completed" });
    expect(room.world.clock.now().getTime() - before).toBeLessThan(20 * MINUTE_MS);
  });

  test("a long outage needs attention, and the rotation ends automatically within hours after it", async () => {
    const rotationId = await overlapping();
    const before = room.world.clock.now().getTime();
    room.control.addFault(ofVault(SECOND, { kind: "fail", status: 503 }));
    const { row } = await room.world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
    expect(row.status).toBe("overlapping");
    expect(row.reasons).toEqual([
      expect.stringMatching(
        /can't read now which places and consumers hold the new secret: .*key vault kv-second.*503/,
      ),
    ]);
    expect(room.world.clock.now().getTime() - before).toBeLessThan(HOUR_MS);
    expect(await room.notices("rotationDue")).toContainEqual(expect.stringContaining("can't read now"));
    room.world.pass(DAY_MS);
    await room.world.run(rotationId, { until: ({ failures }) => failures === 2 });
    room.control.clearFaults();
    const healed = room.world.clock.now().getTime();
    expect((await room.world.run(rotationId)).row).toMatchObject({ status: "completed" });
    expect(room.world.clock.now().getTime() - healed).toBeLessThan(2 * HOUR_MS);
  });
});
