import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { MatchRows } from "../../shared/rotation/match.ts";
import { ROTATIONS, type RotationRecord, Rotations } from "../../shared/rotation/rotation.ts";
import { createRotationRows, recordKey } from "../../shared/rotation/rows.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/**
 * Tests of people without rights ("strangers" below). They have no right on a rotated secret, but can write to a vault, an app,
 * a project or a queue of their own. None gets a new value, none stops, delays or rolls back a rotation, and each is named. If
 * a stranger's vault secret may hold the old value, a user decides once, before the old value is removed: the new value is in
 * use by then.
 *
 * Consumers below have the ways to get a new value that `RefreshMethod` in consumers.ts explains, such as `action`.
 */

const [STRANGER_VAULT, OTHER_VAULT] = ["kv-stranger", "kv-other"];
const company: Company = {
  subscriptions: [
    {
      id: "11111111-1111-4111-8111-111111111111",
      name: "Shop",
      vaults: [VAULT, STRANGER_VAULT, OTHER_VAULT].map((name) => ({ name })),
    },
  ],
};
/** Number of storage accounts. Each test has its own. */
const MAX_TESTS = 110;

let azurite: TestStorage;
let accountIndex = 0;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;
type App = ReturnType<(typeof fixture)["addApplication"]>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: MAX_TESTS }, (_, index) => `strangers${index}`));
  live = await startTestCloud({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  live.cloud.control.clearFaults();
  // A vault that never answers costs three attempts of `requestTimeoutMs`.
  const limits = { firstWaitMs: 1, requestTimeoutMs: 1_500 };
  fixture = openMatchingFixture(live, azurite.connectionString(`strangers${accountIndex++}`), limits);
});

const control = () => fixture.control;
const valueIn = (vault: string, app: App) => control().secretValue(vault, app.name)!;
const validKeyIds = ({ appId }: App): string[] =>
  control()
    .directory.secrets(appId)
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));
const isWaitingForUser = ({ needsConfirmation }: RotationRecord) => needsConfirmation;

/** Adds an application whose vault secret a user has confirmed. */
async function addKnownApplication(): Promise<App> {
  const app = fixture.addApplication();
  await fixture.discover(app);
  await fixture.confirm(app);
  return app;
}

/** Returns the secret that a stranger puts into their own vault. */
type Plant = (app: App) => {
  value: string;
  contentType?: string;
  tags?: Record<string, string>;
  createdDaysAgo?: number;
};

const hintOf = (app: App) => valueIn(VAULT, app).slice(0, 3);
const tagsFor = ({ appId, keyId }: App) => ({ "entra-app-id": appId, "entra-key-id": keyId });
const PLANTS: [what: string, plant: Plant][] = [
  ["the service's tags and another value", (app) => ({ value: "x", tags: tagsFor(app) })],
  [
    "the tags of Microsoft's sample and another value",
    ({ appId, keyId }) => ({ value: "x", tags: { ProviderAddress: `/applications/${appId}`, CredentialId: keyId } }),
  ],
  ["the content type and another value", ({ contentType }) => ({ value: "x", contentType })],
  ["a value that begins like the old one", (app) => ({ value: `${hintOf(app)}-guessed`, tags: tagsFor(app) })],
  [
    "a value of 25 KB that begins like the old one",
    (app) => ({ value: hintOf(app) + "x".repeat(25_000), tags: tagsFor(app) }),
  ],
  ["a copy of the old value", (app) => ({ value: valueIn(VAULT, app), tags: tagsFor(app) })],
  [
    "a copy that looks older than the original",
    (app) => ({ value: valueIn(VAULT, app), tags: tagsFor(app), createdDaysAgo: 400 }),
  ],
  [
    "the tags of a rotation of this service",
    (app) => ({
      value: "x",
      tags: { ...tagsFor(app), "rotation-id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "managed-by": "credential-lifecycle" },
    }),
  ],
];

/** How the stranger's vault answers. */
const ANSWERS: [how: string, action: FaultAction | undefined, operation?: string][] = [
  ["answers", undefined],
  ["denies the value", { kind: "deny" }, "keyvault.getSecret"],
  ["denies everything", { kind: "deny" }],
  ["has a closed firewall", { kind: "firewall" }],
  ["always answers 503", { kind: "fail", status: 503 }],
  ["always answers 429", { kind: "throttle" }],
  ["always cuts the connection", { kind: "reset" }],
  ["answers with a proxy's page", { kind: "garbage", as: "html" }],
];

const VAULT_CASES = PLANTS.flatMap(([what, plant]) =>
  ANSWERS.map(([how, action, operation]) => ({ what, plant, how, action, operation })),
);

/** Plants a secret into the stranger's vault, and lets the service discover it. */
async function plantSecret(app: App, plant: Plant): Promise<App> {
  const planted = plant(app);
  control().putSecret(STRANGER_VAULT, { name: app.name, createdDaysAgo: 1, ...planted });
  const createdOn =
    Math.floor(fixture.world.clock.now().getTime() / 1000) - (planted.createdDaysAgo ?? 1) * DAY_SECONDS;
  const copy = { ...app, vaultName: STRANGER_VAULT, assetId: `${STRANGER_VAULT}.secret.${app.name}` };
  await fixture.discover(app, { ...copy, createdOn });
  return copy;
}

/**
 * Runs a rotation to its end. If a user must decide, states that the stranger's secret is no copy. If that is not enough,
 * finishes the rotation by force.
 */
async function runWithUser(rotationId: string, app: App, planted: App): Promise<RotationRecord> {
  let { row } = await fixture.world.run(rotationId, { until: isWaitingForUser });
  if (!row.needsConfirmation) return row;
  // The new value is in use. Only the removal of the old secret waits, and the reasons name the stranger's secret alone.
  expect([row.status, row.publications.map(({ state }) => state)]).toEqual(["overlapping", ["written"]]);
  expect(row.reasons.filter((reason) => !reason.startsWith(`${STRANGER_VAULT}/${app.name} `))).toEqual([]);
  expect(control().directory.keyIdOf(app.appId, valueIn(VAULT, app))).toBe(row.newKeyId);
  await fixture.matches
    .confirm(app.appId, { assetId: planted.assetId, confirmed: false }, BOSS)
    // The vault does not answer, so the version is unknown.
    .catch(() => undefined);
  await fixture.rotations.placeReviewed(app.appId);
  // `placeReviewed` sets `placeConfirmedAt`, and the rotation's next step clears it: wait for the decision after that step.
  row = (
    await fixture.world.run(rotationId, {
      until: ({ placeConfirmedAt, needsConfirmation }) => placeConfirmedAt === undefined && needsConfirmation,
    })
  ).row;
  if (row.status !== "overlapping") return row;
  await fixture.rotations.finish(rotationId, true, BOSS);
  return (await fixture.world.run(rotationId)).row;
}

describe("a secret of a stranger's vault", () => {
  test.each(VAULT_CASES)("with $what, whose vault $how, gets no new value and stops no rotation", async (one) => {
    const app = await addKnownApplication();
    const planted = await plantSecret(app, one.plant);
    const valueBefore = valueIn(STRANGER_VAULT, app);
    const match = { vault: STRANGER_VAULT, ...(one.operation !== undefined && { operation: one.operation }) };
    if (one.action !== undefined) control().addFault({ match, action: one.action });
    const row = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
    expect(row.publications.map(({ vaultName }) => vaultName)).toEqual([VAULT]);
    expect(row.notUpdated.map(({ vaultName }) => vaultName)).toEqual([STRANGER_VAULT]);
    const ended = await runWithUser(row.rotationId, app, planted);
    expect([ended.status, ended.failure, validKeyIds(app)], JSON.stringify(ended)).toEqual([
      "completed",
      undefined,
      [ended.newKeyId],
    ]);
    expect(valueIn(STRANGER_VAULT, app)).toBe(valueBefore);
  });

  test("that appears during the overlap gets no new value", async () => {
    const app = await addKnownApplication();
    const oldValue = valueIn(VAULT, app);
    const { rotationId } = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
    await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    const planted = await plantSecret(app, () => ({ value: oldValue, tags: tagsFor(app) }));
    const ended = await runWithUser(rotationId, app, planted);
    expect([ended.status, validKeyIds(app)]).toEqual(["completed", [ended.newKeyId]]);
    expect(valueIn(STRANGER_VAULT, app)).toBe(oldValue);
  });

  test("that a request names blocks it only while its vault gives no answer", async () => {
    const app = await addKnownApplication();
    await plantSecret(app, (one) => ({ value: valueIn(VAULT, one), tags: tagsFor(one) }));
    const fault = control().addFault({ match: { vault: STRANGER_VAULT }, action: { kind: "fail", status: 503 } });
    const targets = [STRANGER_VAULT, VAULT].map((vaultName) => ({ vaultName, secretName: app.name }));
    await expect(fixture.rotations.plan(fixture.requestFor(app, { targets }))).rejects.toMatchObject({
      code: "unavailable",
      status: 503,
    });
    expect((await fixture.rotations.plan(fixture.requestFor(app))).notUpdated).toMatchObject([
      { vaultName: STRANGER_VAULT, reason: "unanswered" },
    ]);
    control().removeFault(fault);
    const plan = await fixture.rotations.plan(fixture.requestFor(app, { targets }));
    expect(plan.publications.map(({ vaultName }) => vaultName).sort()).toEqual([VAULT, STRANGER_VAULT]);
  });

  test("does not stop an automatic rotation although its vault never answers", async () => {
    const app = await addKnownApplication();
    await plantSecret(app, (one) => ({ value: valueIn(VAULT, one), tags: tagsFor(one) }));
    control().addFault({ match: { vault: STRANGER_VAULT }, action: { kind: "fail", status: 503 } });
    await fixture.setPolicy(app.appId);
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true }]);
  });
});

describe("a consumer that could not use the secret before the rotation", () => {
  const CONSUMERS = [
    {
      id: "web app without access",
      how: "action" as const,
      problem: "App Service can't follow DB: AccessToKeyVaultDenied.",
    },
    { id: "app that loads secrets by itself", how: "automatic" as const, problem: "It can't read the secret." },
    {
      id: "app pinned to a version",
      how: "willBreak" as const,
      problem: "App Service can't follow DB: SecretVersionNotFound.",
    },
    {
      id: "service connection",
      how: "action" as const,
      copy: true,
      problem: "Azure DevOps can't sign in with the connection.",
    },
  ];
  const CASES = CONSUMERS.flatMap((consumer) =>
    (["an application's", "a vault"] as const).flatMap((subject) =>
      (["before the plan", "during the overlap"] as const).map((when) => ({ ...consumer, subject, when })),
    ),
  );

  test.each(CASES)("($id, $subject secret, added $when) is named and ignored", async (one) => {
    const { world } = fixture;
    const consumers = new SimulatedConsumers(world);
    world.consumers = consumers;
    const app = one.subject === "a vault" ? undefined : await addKnownApplication();
    const secretName = app?.name ?? `secret-${accountIndex}`;
    const request =
      app === undefined
        ? { ...world.addVaultSecret(secretName, "old-value", "new-value"), overlapDays: 1 }
        : fixture.requestFor(app);
    // `blast` 9: a rotation refreshes this consumer after all others.
    consumers.add("web-good", secretName, "action", { blast: 9 });
    const add = () =>
      consumers.add(one.id, secretName, one.how, { brokenBefore: one.problem, copy: one.copy ?? false });
    if (one.when === "before the plan") add();
    const planned = await world.start().begin(request, BOSS);
    const expected = { id: one.id, brokenBefore: true, state: "unverified", problem: one.problem };
    if (one.when === "before the plan") expect(planned.consumers).toContainEqual(expect.objectContaining(expected));
    const { row: overlapping } = await world.run(planned.rotationId, {
      until: ({ status }) => status === "overlapping",
    });
    if (one.when === "during the overlap") add();
    const { row } = await world.run(planned.rotationId, { until: isWaitingForUser });
    expect([row.status, row.reasons], JSON.stringify(row)).toEqual(["completed", []]);
    expect(row.consumers).toContainEqual(expect.objectContaining(expected));
    expect(row.consumers).toContainEqual(expect.objectContaining({ id: "web-good", state: "verified" }));
    expect(consumers.calls.filter(({ id }) => id === one.id)).toEqual([]);
    expect(Date.parse(row.endedAt!)).toBeLessThan(Date.parse(overlapping.overlapEndsAt!) + HOUR_MS);
  });
});

describe("a consumer that recovers after the plan", () => {
  async function planWithBrokenConsumer(app: App) {
    const { world } = fixture;
    const consumers = new SimulatedConsumers(world);
    world.consumers = consumers;
    consumers.add("app", app.name, "automatic", { slowestSeconds: 7_200, brokenBefore: "It can't read the secret." });
    const { rotationId, consumers: planned } = await world.start().begin(fixture.requestFor(app), BOSS);
    expect(planned).toMatchObject([{ id: "app", brokenBefore: true }]);
    await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    return { rotationId, consumer: consumers.consumersById.get("app")! };
  }

  test("keeps the old secret until it has the new one", async () => {
    const app = await addKnownApplication();
    const { rotationId, consumer } = await planWithBrokenConsumer(app);
    consumer.brokenBefore = undefined;
    consumer.reloadsAt = Number.POSITIVE_INFINITY;
    const { row } = await fixture.world.run(rotationId, { until: isWaitingForUser });
    expect([row.status, row.reasons]).toEqual(["overlapping", ["webApp app still uses the old value."]]);
    expect(row.consumers).toMatchObject([{ brokenBefore: false, holds: "old" }]);
    consumer.reloadsAt = 0;
    const { row: ended } = await fixture.world.run(rotationId);
    expect([ended.status, validKeyIds(app)]).toEqual(["completed", [ended.newKeyId]]);
  });

  test("keeps the new secret in a rollback until it has the old one again", async () => {
    const app = await addKnownApplication();
    const { rotationId, consumer } = await planWithBrokenConsumer(app);
    const newValue = valueIn(VAULT, app);
    const version = (await fixture.rotations.get(rotationId)).publications[0]!.writtenVersion!;
    Object.assign(consumer, { brokenBefore: undefined, value: newValue, version, reloadsAt: undefined });
    await fixture.rotations.cancel(rotationId, BOSS);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, consumer.value === newValue]).toEqual(["cancelled", false]);
    // The rollback waits until the consumer has loaded the old value: after half of its slowest time of two hours.
    expect(Date.parse(row.endedAt!) - Date.parse(row.publications[0]!.restoredAt!)).toBeGreaterThan(50 * MINUTE_MS);
    expect(validKeyIds(app)).toEqual([app.keyId]);
  });
});

describe("another vault of the same name", () => {
  test.each([["the match"], ["the match and the rotation"]])(
    "is a new place, even if %s that an earlier release stored has no vault ID",
    async (which) => {
      const app = await addKnownApplication();
      const { row } = await fixture.world.run(
        (await fixture.rotations.begin(fixture.requestFor(app), BOSS)).rotationId,
      );
      const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
      const tables = fixture.world.tables();
      await tables.modify(MatchRows, `app:${app.appId}`, `${VAULT}|${app.name}`, (now) => {
        const { confirmed: _, rotated, ...before } = withoutKeys(now!);
        const { vaultId: __, ...withoutId } = rotated!;
        return which === "the match" ? { ...before, rotated: withoutId } : before;
      });
      if (which !== "the match")
        await tables.modify(Rotations, ROTATIONS, recordKey(row.rotationId), (now) => ({
          ...withoutKeys(now!),
          publications: now!.publications.map(({ vaultId: __, ...publication }) => publication),
        }));
      const knownAs = async () => {
        await fixture.discover(next);
        const directory = (await fixture.graph.findApplication({ appId: app.appId }))!;
        return (await fixture.matches.targetsOf(directory, next.keyId)).map((target) => target.knownAs);
      };
      expect(await knownAs()).toEqual(["rotated"]);
      // The vault was deleted, and a stranger created another one with its name and a copy of the value.
      const value = valueIn(VAULT, app);
      control().remove(VAULT, "secrets", app.name);
      control().putSecret(VAULT, { name: app.name, value, contentType: next.contentType, createdDaysAgo: 1 });
      fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/recreated";
      expect(await knownAs()).toEqual(["new"]);
    },
  );
});

describe("a message that a stranger puts into a queue", () => {
  test.each(["proving", "publishing", "verifying", "overlapping"] as const)(
    "changes nothing in a rotation that is %s and not due, and does not stop it",
    async (status) => {
      const app = await addKnownApplication();
      const { rotationId } = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
      await fixture.world.run(rotationId, { until: (row) => row.status === status });
      const { clock } = fixture.world;
      const rows = createRotationRows({ tables: fixture.world.tables(), clock, randomness: systemRandomness() });
      const current = (await rows.get(rotationId))!;
      await rows.save(current, { ...current, dueAt: new Date(clock.now().getTime() + HOUR_MS).toISOString() });
      const row = await fixture.rotations.get(rotationId);
      const callsBefore = fixture.world.calls.length;
      for (let copy = 0; copy < 5; copy++) await fixture.world.start().work(rotationId, "stranger");
      expect(await fixture.rotations.get(rotationId)).toEqual(row);
      const changes = fixture.world.calls.slice(callsBefore).filter((call) => /^(vault|graph|own)\./.test(call));
      expect(changes).toEqual([]);
      expect((await fixture.world.run(rotationId)).row.status).toBe("completed");
    },
  );

  test("starts no automatic rotation without a policy, and none of an unknown application", async () => {
    const app = await addKnownApplication();
    await fixture.automatic.begin(app.appId, "stranger");
    await fixture.automatic.begin("00000000-0000-4000-8000-000000000000", "stranger");
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
  });

  test.each(["01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "r|x", "../x"])("with the rotation ID %j does nothing", async (id) => {
    await fixture.world.start().work(id, "stranger");
    expect(fixture.world.calls.filter((call) => !call.startsWith("tables."))).toEqual([]);
  });
});

describe("an unreadable row of a match", () => {
  const corrupt = async (app: App, partitionKey: string, rowKey: string) => {
    const connection = azurite.connectionString(`strangers${accountIndex - 1}`);
    const table = TableClient.fromConnectionString(connection, "RotationMatches", { allowInsecureConnection: true });
    await table.upsertEntity(
      { partitionKey, rowKey, vaultName: app.vaultName, secretName: app.name, rotated_json: "{" },
      "Replace",
    );
  };

  test("affects only its own results, and the rotation that it belongs to completes", async () => {
    const app = await addKnownApplication();
    const second = fixture.copySecretTo(app, OTHER_VAULT);
    await fixture.discover(app, second);
    await fixture.confirm(app, second);
    const { rotationId } = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
    await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    for (const { vaultName, name, appId } of [app, second])
      await corrupt({ ...app, vaultName }, `app:${appId}`, `${vaultName}|${name}`);
    await corrupt(app, "secrets", `${VAULT}|${app.name}|${app.appId}`);
    const listed = await fixture.matches.listMatches(app.appId);
    expect(listed.coverage).toContain(
      `The stored confirmation and tests of ${VAULT}/${app.name} can't be read. Confirm the match again.`,
    );
    const { row } = await fixture.world.run(rotationId, { until: isWaitingForUser });
    expect([row.status, row.reasons, validKeyIds(app)], JSON.stringify(row)).toEqual(["completed", [], [row.newKeyId]]);
    // The end of the rotation wrote the rows again.
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    await fixture.discover(next, { ...next, vaultName: OTHER_VAULT });
    const plan = await fixture.rotations.plan(fixture.requestFor(next));
    expect(plan.publications.map(({ vaultName }) => vaultName).sort()).toEqual([OTHER_VAULT, VAULT]);
  });

  test("keeps the old secret if the place has no other evidence, until a user decides", async () => {
    const app = await addKnownApplication();
    const name = `plain-${accountIndex}`;
    const plain = { ...app, name, vaultName: OTHER_VAULT, contentType: "", assetId: `${OTHER_VAULT}.secret.${name}` };
    control().putSecret(OTHER_VAULT, { name, value: valueIn(VAULT, app), createdDaysAgo: 1 });
    await fixture.discover(plain, app);
    await fixture.confirm(plain);
    await corrupt(plain, `app:${app.appId}`, `${OTHER_VAULT}|${name}`);
    const { rotationId, notUpdated } = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
    expect(notUpdated).toMatchObject([{ vaultName: OTHER_VAULT, confidence: "likely", reason: "uncertain" }]);
    const { row } = await fixture.world.run(rotationId, { until: isWaitingForUser });
    expect([row.status, row.reasons]).toEqual([
      "overlapping",
      [`${OTHER_VAULT}/${name} probably stores the old secret and was not updated.`],
    ]);
    expect(validKeyIds(app)).toEqual([app.keyId, row.newKeyId]);
  });

  test("makes a place that only a user confirmed a new place, which is named and can be confirmed again", async () => {
    const app = await addKnownApplication();
    const second = fixture.copySecretTo(app, OTHER_VAULT);
    await fixture.discover(app, second);
    await fixture.confirm(app, second);
    await corrupt(second, `app:${app.appId}`, `${OTHER_VAULT}|${app.name}`);
    const places = async () => {
      const { publications, notUpdated } = await fixture.rotations.plan(fixture.requestFor(app));
      return [
        publications.map(({ vaultName }) => vaultName).sort(),
        notUpdated.map(({ vaultName, reason }) => [vaultName, reason]),
      ];
    };
    expect(await places()).toEqual([[VAULT], [[OTHER_VAULT, "newPlace"]]]);
    await fixture.confirm(second);
    expect(await places()).toEqual([[OTHER_VAULT, VAULT], []]);
  });
});
