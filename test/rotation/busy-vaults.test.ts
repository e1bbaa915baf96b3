import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault, FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/**
 * Tests of rotations while Key Vault, Microsoft Graph or the sign-in is temporarily unavailable. Two vaults store the secret.
 */

const SECOND_VAULT = "kv-second";
const company: Company = {
  subscriptions: [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: SECOND_VAULT }] },
  ],
};

let azurite: TestStorage;
let accountIndex = 0;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;
let app: ReturnType<(typeof fixture)["addApplication"]>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 60 }, (_, index) => `busy${index}`));
  live = await startTestCloud({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(async () => {
  live.cloud.control.clearFaults();
  // A vault that never answers costs three attempts of `requestTimeoutMs`.
  const limits = { firstWaitMs: 1, requestTimeoutMs: 2_000 };
  fixture = openMatchingFixture(live, azurite.connectionString(`busy${accountIndex++}`), limits);
  app = fixture.addApplication();
  const second = fixture.copySecretTo(app, SECOND_VAULT);
  await fixture.discover(app, second);
  await fixture.confirm(app, second);
});

const plannedInBoth = [`${VAULT} planned`, `${SECOND_VAULT} planned`];
const publicationStates = ({ publications }: RotationRecord) =>
  publications.map(({ vaultName, state }) => `${vaultName} ${state}`);
const startRotation = async () => await fixture.rotations.begin(fixture.requestFor(app), BOSS);
const vaultFault = (vault: string, action: FaultAction): Fault => ({ match: { vault }, action });

const TRANSIENT_FAULTS: [how: string, action: FaultAction][] = [
  ["answers 503", { kind: "fail", status: 503 }],
  ["answers 500", { kind: "fail", status: 500 }],
  ["answers 429", { kind: "throttle" }],
  ["cuts the connection", { kind: "reset" }],
  ["never answers", { kind: "hang" }],
  ["answers with a proxy's page", { kind: "garbage", as: "html" }],
];

const OUTAGES: [what: string, ...faults: Fault[]][] = [
  ...TRANSIENT_FAULTS.map(([how, action]) => [`the first vault ${how}`, vaultFault(VAULT, action)] as [string, Fault]),
  // Without the last fault, the page of a proxy, which the first vault covers.
  ...TRANSIENT_FAULTS.slice(0, 5).map(
    ([how, action]) => [`the second vault ${how}`, vaultFault(SECOND_VAULT, action)] as [string, Fault],
  ),
  [
    "both vaults answer 503",
    ...[VAULT, SECOND_VAULT].map((vault) => vaultFault(vault, { kind: "fail", status: 503 })),
  ] as [string, ...Fault[]],
  ["Microsoft Graph answers 503", { match: { operation: "graph.*" }, action: { kind: "fail", status: 503 } }],
];

const unavailable = expect.objectContaining({
  code: "unavailable",
  status: 503,
  headers: { "Retry-After": expect.stringMatching(/^\d+$/) },
});

test.each(OUTAGES)(
  "if %s, no rotation starts and the request fails with a 503 that names the cause",
  async (_, ...faults) => {
    for (const fault of faults) fixture.control.addFault(fault);
    const error = await startRotation().catch((thrown: unknown) => thrown as Error);
    expect(error).toEqual(unavailable);
    const names = faults.map(({ match }) => match?.vault ?? "Microsoft Graph");
    expect(names.filter((name) => (error as Error).message.includes(name))).not.toEqual([]);
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    fixture.control.clearFaults();
    const row = await startRotation();
    expect([publicationStates(row), row.notUpdated]).toEqual([plannedInBoth, []]);
  },
);

test("if the sign-in service fails, no rotation starts and the request fails with 503", async () => {
  const unconfirmed = fixture.addApplication();
  await fixture.discover(unconfirmed);
  for (const action of [{ kind: "fail", status: 503 }, { kind: "reset" }, { kind: "garbage", as: "html" }] as const) {
    const fault = fixture.control.addFault({ match: { operation: "entra.token" }, action });
    await expect(fixture.rotations.begin(fixture.requestFor(unconfirmed), BOSS)).rejects.toEqual(unavailable);
    fixture.control.removeFault(fault);
  }
  const row = await fixture.rotations.begin(fixture.requestFor(unconfirmed), BOSS);
  expect(publicationStates(row)).toEqual([`${VAULT} planned`]);
});

test("an automatic rotation is retried after a vault was unavailable", async () => {
  await fixture.setPolicy(app.appId);
  for (const vault of [VAULT, SECOND_VAULT]) fixture.control.addFault(vaultFault(vault, { kind: "fail", status: 503 }));
  await expect(fixture.runTimer()).rejects.toMatchObject({
    code: expect.stringMatching(/^(unreachable|unavailable)$/),
  });
  const { attention, nextCheckAt } = await fixture.policies.get(app.appId);
  expect([attention, nextCheckAt]).toEqual([undefined, undefined]);
  fixture.control.clearFaults();
  await fixture.runTimer();
  const [{ rotationId } = { rotationId: "" }] = await fixture.rotationsOf(app.appId);
  expect(publicationStates(await fixture.rotations.get(rotationId))).toEqual(plannedInBoth);
});

describe("at the end of the overlap", () => {
  const runToOverlapEnd = async () => {
    const { rotationId } = await startRotation();
    const { row } = await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    fixture.world.advanceClock(Date.parse(row.overlapEndsAt!) - fixture.world.clock.now().getTime());
    return rotationId;
  };

  test.each<[what: string, fault: Fault]>([
    ["a vault answers 503", vaultFault(SECOND_VAULT, { kind: "fail", status: 503 })],
    ["Microsoft Graph answers 503", { match: { operation: "graph.*" }, action: { kind: "fail", status: 503 } }],
    ["the sign-in service answers 503", { match: { operation: "entra.token" }, action: { kind: "fail", status: 503 } }],
  ])("if %s, the check is repeated within minutes and needs no attention", async (_, fault) => {
    const rotationId = await runToOverlapEnd();
    const startedAtMs = fixture.world.clock.now().getTime();
    fixture.control.addFault(fault);
    const { row } = await fixture.world.run(rotationId, { until: ({ failures }) => failures === 3 });
    expect(row).toMatchObject({ status: "overlapping", needsConfirmation: false, reasons: [] });
    await expect(fixture.rotations.finish(rotationId, false, BOSS)).rejects.toEqual(unavailable);
    fixture.control.clearFaults();
    expect((await fixture.world.run(rotationId)).row).toMatchObject({ status: "completed" });
    expect(fixture.world.clock.now().getTime() - startedAtMs).toBeLessThan(20 * MINUTE_MS);
  });

  test("after a long outage the rotation ends automatically within two hours", async () => {
    const rotationId = await runToOverlapEnd();
    const startedAtMs = fixture.world.clock.now().getTime();
    fixture.control.addFault(vaultFault(SECOND_VAULT, { kind: "fail", status: 503 }));
    const { row } = await fixture.world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
    expect(row.status).toBe("overlapping");
    expect(row.reasons).toEqual([
      expect.stringMatching(
        /can't read now which places and consumers hold the new secret: .*key vault kv-second.*503/,
      ),
    ]);
    expect(fixture.world.clock.now().getTime() - startedAtMs).toBeLessThan(HOUR_MS);
    expect(await fixture.notices("rotationDue")).toContainEqual(expect.stringContaining("can't read now"));
    fixture.world.advanceClock(DAY_MS);
    await fixture.world.run(rotationId, { until: ({ failures }) => failures === 2 });
    fixture.control.clearFaults();
    const outageEndedAt = fixture.world.clock.now().getTime();
    expect((await fixture.world.run(rotationId)).row).toMatchObject({ status: "completed" });
    expect(fixture.world.clock.now().getTime() - outageEndedAt).toBeLessThan(2 * HOUR_MS);
  });
});
