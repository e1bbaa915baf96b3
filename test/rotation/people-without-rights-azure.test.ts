import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createFailedMessages } from "../../shared/messages/failed-messages.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { DueMessage } from "../../shared/rotation/automatic.ts";
import { MatchRows } from "../../shared/rotation/match.ts";
import { RotationMessage, type RotationRecord, type RotationStatus } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { addConnection, connectAzureAndDevops } from "./azure-and-devops.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/**
 * Tests of people without a right on a rotated secret, with web apps, service connections and vaults of the simulated cloud. The
 * table `CASES` names what such a person does, and the expected outcome of the rotation. In every case the person gets no new
 * value, the application's own vault and web app get it, and the rotation is neither rolled back nor stopped.
 */

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const STRANGER_SUBSCRIPTION = "22222222-2222-4222-8222-222222222222";
const STRANGER_VAULT = "kv-stranger";
const company: Company = {
  subscriptions: [
    { id: SUBSCRIPTION, name: "Shop", vaults: [{ name: VAULT }] },
    { id: STRANGER_SUBSCRIPTION, name: "Playground", vaults: [{ name: STRANGER_VAULT }] },
  ],
  devops: { organization: "acme", projects: [{ name: "Shop" }, { name: "Playground" }] },
};

let azurite: TestStorage;
let accountIndex = 0;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;
let dependencies: Awaited<ReturnType<typeof connectAzureAndDevops>>;
type App = ReturnType<(typeof fixture)["addApplication"]>;

const control = () => fixture.control;
const oldValueOf = (app: App) => secretValueOf(app.name, "old");
const tagsFor = ({ appId, keyId }: App) => ({ "entra-app-id": appId, "entra-key-id": keyId });

/** The action of a person without a right. Returns the name that the rotation must report. */
type Attempt = (app: App) => Promise<string> | string;

interface Case {
  what: string;
  attempt: Attempt;
  /** Whether the attempt happens before the plan or during the overlap period. */
  when: "plan" | "overlap";
  /**
   * Where the rotation names the attempt: a place that is not updated with this reason, a consumer that is ignored because it
   * can't use the secret (`broken`), or a consumer that is not refreshed (`leftOut`). Nowhere if the attempt has no effect at
   * all.
   */
  named: "newPlace" | "uncertain" | "broken" | "leftOut" | "nowhere";
  /** Whether the removal of the old secret waits for a user. The new value is in use by then. */
  waits: boolean;
}

/** Adds a secret to the stranger's vault, and lets the service discover it. */
async function plant(
  app: App,
  planted: { value: string; tags?: Record<string, string>; contentType?: string; createdDaysAgo?: number },
): Promise<string> {
  control().putSecret(STRANGER_VAULT, { name: app.name, createdDaysAgo: 1, ...planted });
  const createdOn =
    Math.floor(fixture.world.clock.now().getTime() / 1000) - (planted.createdDaysAgo ?? 1) * DAY_SECONDS;
  const { contentType = "", tags } = planted;
  await fixture.discover(app, { ...app, contentType, tags, vaultName: STRANGER_VAULT, createdOn });
  return `${STRANGER_VAULT}/${app.name}`;
}

const TAGS: [what: string, planted: (app: App) => { tags?: Record<string, string>; contentType?: string }][] = [
  ["the service's tags", (app) => ({ tags: tagsFor(app) })],
  [
    "the tags of Microsoft's sample",
    ({ appId, keyId }) => ({ tags: { ProviderAddress: `/applications/${appId}`, CredentialId: keyId } }),
  ],
  ["the content type", ({ contentType }) => ({ contentType })],
  [
    "the tags of a rotation",
    (app) => ({ tags: { ...tagsFor(app), "rotation-id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "managed-by": "x" } }),
  ],
  ["only the application's ID", ({ appId }) => ({ tags: { note: appId } })],
];
const tagCases = TAGS.flatMap(([what, planted]): Case[] => {
  const namesCredential = what !== "only the application's ID";
  return [
    {
      what: `${what} on a secret with another value`,
      attempt: (app) => plant(app, { value: "of the stranger", ...planted(app) }),
      when: "plan",
      named: "uncertain",
      waits: !namesCredential,
    },
    {
      what: `${what} on a secret that the service may not read`,
      attempt: (app) => {
        control().addFault({ match: { vault: STRANGER_VAULT }, action: { kind: "deny" } });
        return plant(app, { value: "of the stranger", ...planted(app) });
      },
      when: "plan",
      named: "uncertain",
      waits: true,
    },
  ];
});

const COPIES: [what: string, planted: (app: App) => Parameters<typeof plant>[1]][] = [
  ["with tags", (app) => ({ value: oldValueOf(app), tags: tagsFor(app) })],
  [
    "that looks older than the original",
    (app) => ({ value: oldValueOf(app), tags: tagsFor(app), createdDaysAgo: 400 }),
  ],
  ["with the content type", (app) => ({ value: oldValueOf(app), contentType: app.contentType })],
];
const copyCases = COPIES.flatMap(([what, planted]) =>
  (["plan", "overlap"] as const).map(
    (when): Case => ({
      what: `a copy of the old value ${what}`,
      attempt: (app) => plant(app, planted(app)),
      when,
      named: "newPlace",
      waits: true,
    }),
  ),
);

/** Adds a resource to the stranger's subscription, without access to any vault. */
async function addResource(resource: CompanyResource): Promise<string> {
  const id = control().consumers.put(STRANGER_SUBSCRIPTION, { identity: { system: true }, mayRead: [], ...resource });
  await dependencies.discover();
  return id;
}
const referenceTo = (app: App, version = "") =>
  `@Microsoft.KeyVault(VaultName=${VAULT};SecretName=${app.name}${version && `;SecretVersion=${version}`})`;
const site = (app: App, rest: Partial<CompanyResource> = {}): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name: `stranger-${app.name}`,
  kind: "app",
  settings: { DB: referenceTo(app) },
  ...rest,
});

const RESOURCES: [what: string, attempt: Attempt, named: Case["named"], waits: boolean][] = [
  ["a web app without access", (app) => addResource(site(app)), "broken", false],
  ["a web app without an identity", (app) => addResource(site(app, { identity: {} })), "broken", false],
  [
    "a slot without access",
    async (app) => {
      const slot = { name: "staging", kind: "app", identity: { system: true }, settings: { DB: referenceTo(app) } };
      const id = await addResource(site(app, { settings: {}, children: { slots: [{ ...slot, mayRead: [] }] } }));
      return `${id}/slots/staging`;
    },
    "broken",
    false,
  ],
  [
    "a web app pinned to the current version, without access",
    (app) => {
      const { version } = control()
        .items(VAULT, "secrets")
        .find(({ name }) => name === app.name)!;
      return addResource(site(app, { settings: { DB: referenceTo(app, version) } }));
    },
    "broken",
    false,
  ],
  ...(["Initialized", "FetchTimedOut"] as const).map((status): (typeof RESOURCES)[number] => [
    `a web app whose reference always has the status ${status}`,
    async (app) => {
      const id = await addResource(site(app));
      control().consumers.setSiteFault(id, { statuses: { DB: status } });
      return id;
    },
    "broken",
    false,
  ]),
  [
    "a web app that the service can no longer read",
    async (app) => {
      const id = await addResource(site(app));
      control().consumers.change(id, { denied: true });
      return id;
    },
    "leftOut",
    true,
  ],
  [
    "API Management without access",
    (app) => {
      const keyVault = { secretIdentifier: `{uri:${VAULT}}/secrets/${app.name}` };
      const namedValue = { name: "db", mayRead: [], properties: { displayName: "db", secret: true, keyVault } };
      const name = `stranger-${app.name}`;
      return addResource({ type: "Microsoft.ApiManagement/service", name, children: { namedValues: [namedValue] } });
    },
    "broken",
    false,
  ],
  [
    "a Container Apps job, whose value can't be seen",
    (app) => addResource(containerApp(app, "Microsoft.App/jobs")),
    "leftOut",
    true,
  ],
];
const containerApp = (app: App, type: string): CompanyResource => ({
  type,
  name: `stranger-${app.name}`,
  properties: {
    configuration: { secrets: [{ name: "db", keyVaultUrl: `{uri:${VAULT}}/secrets/${app.name}`, identity: "system" }] },
    template: { containers: [{ name: "main", image: "x:1", env: [{ name: "DB", secretRef: "db" }] }] },
  },
});
const resourceCases = RESOURCES.flatMap(([what, attempt, named, waits]) =>
  (["plan", "overlap"] as const).map((when): Case => ({ what, attempt, when, named, waits })),
);

/** Adds a service connection to the stranger's project. */
async function connect(app: App, rest: Partial<Parameters<typeof addConnection>[1]>): Promise<string> {
  const { appId, name } = app;
  addConnection(fixture.world, { project: "Playground", appId, name: `stranger-${name}`, key: "garbage", ...rest });
  await dependencies.discover();
  return `stranger-${name}`;
}
const CONNECTIONS: [what: string, rest: (app: App) => Parameters<typeof connect>[1], Case["named"], waits: boolean][] =
  [
    ["with a wrong key", () => ({}), "broken", false],
    ["with a wrong key, that accepts no key", () => ({ automatic: true }), "broken", false],
    ["with the old value", (app) => ({ key: oldValueOf(app) }), "leftOut", true],
    ["with the old value, that accepts no key", (app) => ({ key: oldValueOf(app), automatic: true }), "leftOut", true],
    [
      "with the old value and another address",
      (app) => ({ key: oldValueOf(app), url: "https://evil.example/" }),
      "broken",
      false,
    ],
    ["with federation", () => ({ scheme: "WorkloadIdentityFederation" }), "nowhere", false],
  ];
const connectionCases = CONNECTIONS.flatMap(([what, rest, named, waits]) =>
  (["plan", "overlap"] as const).map(
    (when): Case => ({
      what: `a service connection ${what}`,
      attempt: (app) => connect(app, rest(app)),
      when,
      named,
      waits,
    }),
  ),
);

/**
 * An earlier rotation wrote a place in a vault that was deleted since. The stranger's vault now has the name of that vault, and a
 * secret of the same name.
 */
const vaultCases: Case[] = (["plan", "overlap"] as const).map((when) => ({
  what: "another vault of the name of an earlier place, with a copy of the old value",
  attempt: async (app) => {
    await plant(app, { value: oldValueOf(app), tags: tagsFor(app) });
    const rotated = {
      rotationId: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
      keyId: app.keyId,
      version: "0".repeat(32),
      at: "2026-01-01",
    };
    const vaultId = "/subscriptions/former/vaults/deleted";
    const place = { vaultName: STRANGER_VAULT, secretName: app.name };
    await fixture.world.tables().modify(MatchRows, `app:${app.appId}`, `${STRANGER_VAULT}|${app.name}`, (row) => ({
      ...(row ? withoutKeys(row) : place),
      rotated: { ...rotated, vaultId },
    }));
    return `${STRANGER_VAULT}/${app.name}`;
  },
  when,
  named: "newPlace",
  waits: true,
}));

/**
 * The vault of a confirmed place is deleted, and a person without a right creates a vault of the same name in another subscription.
 * The name is free again because the former vault had no purge protection.
 */
const recreatedCases: Case[] = (["plan", "overlap"] as const).map((when) => ({
  what: "the vault of a confirmed place, deleted and created again in another subscription with a copy of the old value",
  attempt: async (app) => {
    const copy = { value: oldValueOf(app), tags: tagsFor(app) };
    fixture.vaultIds[STRANGER_VAULT] =
      `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${STRANGER_VAULT}`;
    const name = await plant(app, copy);
    await fixture.confirm({ ...app, assetId: `${STRANGER_VAULT}.secret.${app.name}` });
    fixture.vaultIds[STRANGER_VAULT] = control().vaultId(STRANGER_VAULT)!;
    await plant(app, copy);
    return name;
  },
  when,
  named: "newPlace",
  waits: true,
}));

/** A message that a stranger puts into a queue while the rotation has a status. */
interface MessageCase {
  what: string;
  status: RotationStatus;
  send: (rotationId: string, app: App) => Promise<void>;
}
const MESSAGES: [queue: string, send: MessageCase["send"]][] = [
  [
    "rotations",
    async (rotationId) => {
      for (let copy = 0; copy < 5; copy++) await fixture.world.start().work(rotationId, "stranger");
    },
  ],
  [
    "rotations-poison",
    (rotationId) =>
      receivePoison("rotations", RotationMessage, { rotationId }, () => fixture.world.start().giveUp(rotationId)),
  ],
  ["rotation-due", (_, { appId }) => fixture.automatic.begin(appId, "stranger")],
  [
    "rotation-due-poison",
    (_, { appId }) =>
      receivePoison("rotation-due", DueMessage, { appId }, () => fixture.automatic.recordFailedMessage(appId)),
  ],
];
const MESSAGE_CASES = MESSAGES.flatMap(([queue, send]) =>
  (["proving", "publishing", "overlapping"] as const).map(
    (status): MessageCase => ({ what: `a message in ${queue}`, status, send }),
  ),
);

/** Receives a message from a poison queue, as the function of that queue does. */
async function receivePoison<S extends typeof RotationMessage | typeof DueMessage>(
  queue: string,
  schema: S,
  body: object,
  handle: () => Promise<void>,
): Promise<void> {
  const { world } = fixture;
  const { clock, log } = world;
  const audit = { append: async (event: (typeof world.events)[number]) => void world.events.push(event) };
  const queues = { send: async () => {}, checkReachable: async () => {} };
  const failedMessages = createFailedMessages({ tables: world.tables(), queues, audit: audit as never, clock, log });
  const message = {
    queue,
    messageId: crypto.randomUUID(),
    insertedAt: clock.now(),
    delivery: 1,
    requestId: "stranger",
  };
  await failedMessages.receive({ ...message, body }, schema, handle);
  // The message is listed, and it has no effect.
  expect((await failedMessages.list({ limit: 10, offset: 0, cursor: undefined })).items).toMatchObject([{ queue }]);
}

const CASES = [...tagCases, ...copyCases, ...resourceCases, ...connectionCases, ...vaultCases, ...recreatedCases];

beforeAll(async () => {
  azurite = await openStorage(
    Array.from({ length: CASES.length + MESSAGE_CASES.length + 40 }, (_, index) => `rights${index}`),
  );
  live = await startTestCloud({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(async () => {
  live.cloud.control.clearFaults();
  live.cloud.control.devops.organization.connections.clear();
  for (const { id } of live.cloud.control.consumers.resources()) live.cloud.control.consumers.remove(id);
  fixture = openMatchingFixture(live, azurite.connectionString(`rights${accountIndex++}`));
  dependencies = await connectAzureAndDevops(fixture.world, [SUBSCRIPTION, STRANGER_SUBSCRIPTION]);
});

/** Adds an application whose vault secret a user has confirmed, and a web app that uses the secret. */
async function addKnownApplication(): Promise<{ app: App; webApp: string }> {
  const app = fixture.addApplication();
  const settings = { DB: referenceTo(app) };
  const resource = {
    type: "Microsoft.Web/sites",
    name: `web-${app.name}`,
    kind: "app",
    identity: { system: true },
    settings,
  };
  const webApp = control().consumers.put(SUBSCRIPTION, { ...resource, mayRead: [VAULT] });
  await fixture.discover(app);
  await fixture.confirm(app);
  await dependencies.discover();
  return { app, webApp };
}

/** Returns all values that the person without a right can read: of their vault, apps and connections. */
function valuesOfStranger(app: App): string[] {
  const { consumers, devops } = control();
  const used = consumers
    .values()
    .filter(({ resource }) => resource.toLowerCase().includes("/stranger-"))
    .flatMap(({ values }) => values.flatMap(({ value }) => value ?? []));
  const keys = [...devops.organization.connections.values()].flatMap(
    ({ authorization: { parameters } }) => parameters.serviceprincipalkey ?? [],
  );
  const stored = control().secretValue(STRANGER_VAULT, app.name);
  return [...used, ...keys, ...(stored === undefined ? [] : [stored])];
}

/** Checks that the rotation replaced the secret where it belongs, and that no one else got the new value. */
function expectReplaced(app: App, webApp: string, row: RotationRecord): void {
  const newValue = control().secretValue(VAULT, app.name)!;
  expect(control().directory.keyIdOf(app.appId, newValue)).toBe(row.newKeyId);
  const used = control().consumers.values({ resource: webApp });
  expect(used.map(({ values }) => values.at(-1)!.value)).toEqual([newValue]);
  expect(valuesOfStranger(app)).not.toContain(newValue);
}

/** Checks that the rotation names the attempt as the case expects. */
function expectNamed({ named }: Case, name: string, { notUpdated, consumers = [], reasons }: RotationRecord): void {
  const found = consumers.filter((one) => one.id.toLowerCase() === name.toLowerCase() || one.name === name);
  if (named === "nowhere") return void expect(found).toEqual([]);
  if (named === "broken" || named === "leftOut") {
    // While a consumer that is new in the overlap period can't be read, only the reason names it.
    if (named === "leftOut" && found.length === 0) {
      expect(reasons.join()).toContain(name.split("/").at(-1));
      return;
    }
    expect(found, JSON.stringify(consumers)).toHaveLength(1);
    const [{ brokenBefore = false, state, problem, how }] = found as [(typeof found)[number]];
    expect([brokenBefore, state], JSON.stringify(found)).toEqual([named === "broken", "unverified"]);
    if (how !== "blind") expect(problem).toMatch(/\w{3}/);
    return;
  }
  const places = notUpdated.map(({ vaultName, secretName }) => `${vaultName}/${secretName}`);
  expect([...places, ...reasons.map((reason) => reason.split(" ")[0])]).toContain(name);
  for (const { reason } of notUpdated)
    expect(named === "newPlace" ? ["newPlace"] : ["uncertain", "unreadable"]).toContain(reason);
}

test("the table has 62 cases", () => {
  expect(CASES.length + MESSAGE_CASES.length).toBe(62);
});

test.each(CASES)("$what ($when): named $named, waits for a user: $waits", async (one) => {
  const { app, webApp } = await addKnownApplication();
  let name = one.when === "plan" ? await one.attempt(app) : "";
  const planned = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
  expect(planned.publications.map(({ vaultName }) => vaultName)).toEqual([VAULT]);
  const { row: overlapping } = await fixture.world.run(planned.rotationId, {
    until: ({ status }) => status === "overlapping",
  });
  expect(overlapping.status, JSON.stringify(overlapping.failure ?? overlapping.attention)).toBe("overlapping");
  expectReplaced(app, webApp, overlapping);
  if (one.when === "overlap") name = await one.attempt({ ...app });
  const { row } = await fixture.world.run(planned.rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expectNamed(one, name, row);
  expect([row.status, row.needsConfirmation], JSON.stringify(row.reasons)).toEqual(
    one.waits ? ["overlapping", true] : ["completed", false],
  );
  // Only the attempt keeps the old secret, and a user decides once.
  if (one.waits) {
    expect(row.reasons).toHaveLength(1);
    await fixture.rotations.finish(row.rotationId, true, BOSS);
  } else expect(Date.parse(row.endedAt!) - Date.parse(overlapping.overlapEndsAt!)).toBeLessThan(3_600_000);
  const { row: ended } = await fixture.world.run(row.rotationId);
  expect(ended.status, JSON.stringify(ended)).toBe("completed");
  expectReplaced(app, webApp, ended);
});

test.each(MESSAGE_CASES)("$what while the rotation is $status changes nothing", async ({ status, send }) => {
  const { app, webApp } = await addKnownApplication();
  const { rotationId } = await fixture.rotations.begin(fixture.requestFor(app), BOSS);
  const { row: before } = await fixture.world.run(rotationId, { until: (row) => row.status === status });
  await send(rotationId, app);
  const after = await fixture.rotations.get(rotationId);
  // A rotation that is due may continue with the message, as with its own.
  if (Date.parse(before.dueAt) > fixture.world.clock.now().getTime()) expect(after).toEqual(before);
  expect(after.status).not.toBe("needsAttention");
  const { row } = await fixture.world.run(rotationId);
  expect(row.status).toBe("completed");
  expectReplaced(app, webApp, row);
  expect(await fixture.rotationsOf(app.appId)).toHaveLength(1);
});

test("an automatic rotation is neither stopped nor delayed by attempts of every kind together", async () => {
  const { app, webApp } = await addKnownApplication();
  await plant(app, { value: oldValueOf(app), tags: tagsFor(app) });
  await connect(app, { key: oldValueOf(app), automatic: true });
  await connect(app, {});
  await addResource(site(app));
  // A resource that is pinned to a version, and whose value can't be seen.
  const { version } = control()
    .items(VAULT, "secrets")
    .find(({ name }) => name === app.name)!;
  const pinned = containerApp({ ...app, name: `${app.name}/${version}` }, "Microsoft.App/containerApps");
  await addResource({ ...pinned, name: `stranger-pinned-${app.name}` });
  await fixture.setPolicy(app.appId);
  await fixture.runTimer();
  expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
  const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
  const { row } = await fixture.world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  // The reasons are the copy, the connection with the old value, and the resource whose value can't be seen.
  expect([row.automatic, row.status, row.reasons.length]).toEqual([true, "overlapping", 3]);
  expectReplaced(app, webApp, row);
});

test("a service connection with the old value is written after a rotation named it once", async () => {
  const { app } = await addKnownApplication();
  const name = `deploy-${app.name}`;
  const id = addConnection(fixture.world, { project: "Shop", appId: app.appId, name, key: oldValueOf(app) });
  await dependencies.discover();
  const keyIdOf = () =>
    control().directory.keyIdOf(
      app.appId,
      control().devops.organization.connections.get(id)!.authorization.parameters.serviceprincipalkey!,
    );
  const plan = await fixture.rotations.plan(fixture.requestFor(app));
  const connection = plan.consumers!.find((one) => one.name === name)!;
  expect(connection).toMatchObject({ included: false, newPlace: true });
  const includeResources = plan.consumers!.map((one) => one.id);
  const { rotationId } = await fixture.rotations.begin(fixture.requestFor(app, { includeResources }), BOSS);
  const { row } = await fixture.world.run(rotationId);
  expect([row.status, keyIdOf()]).toEqual(["completed", row.newKeyId]);
  const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
  await fixture.discover(next);
  // Also more than 60 days later, when the proof of the sign-in is no longer valid.
  fixture.world.advanceClock(70 * 86_400_000);
  const again = await fixture.rotations.begin(fixture.requestFor(next), BOSS);
  const { row: ended } = await fixture.world.run(again.rotationId);
  expect([ended.status, keyIdOf()]).toEqual(["completed", ended.newKeyId]);
});
