import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault, FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { addConnection, connectAzureAndDevops } from "./azure-and-devops.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/**
 * Tests of plans while one source after the other fails: each vault, Microsoft Graph, the sign-in, and what reads the consumers. A
 * plan that needs the source fails with 503, names the source and leaves no rotation. All other plans are complete.
 */

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const [SECOND_VAULT, COPY_VAULT] = ["kv-second", "kv-copy"];
const company: Company = {
  subscriptions: [
    {
      id: SUBSCRIPTION,
      name: "Shop",
      vaults: [{ name: VAULT }, { name: SECOND_VAULT }, { name: COPY_VAULT }],
    },
  ],
  devops: { organization: "acme", projects: [{ name: "Shop" }] },
};

/** A source that never answers costs three attempts of `requestTimeoutMs`. */
const LIMITS = { firstWaitMs: 1, requestTimeoutMs: 1_000 };

let azurite: TestStorage;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;
let app: ReturnType<(typeof fixture)["addApplication"]>;
/** IDs of the web app and of the API Management service that use the secret of the first vault. */
let webApp: string;
let apiManagement: string;

beforeAll(async () => {
  azurite = await openStorage();
  live = await startTestCloud({ company });
  fixture = openMatchingFixture(live, azurite.connectionString(), LIMITS);
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});

/** Adds an application with two confirmed places, a copy in a third vault that no user confirmed, and three consumers. */
beforeEach(async () => {
  const { control, world } = fixture;
  control.clearFaults();
  for (const { id } of control.consumers.resources()) control.consumers.remove(id);
  control.devops.organization.connections.clear();
  app = fixture.addApplication();
  const [second, copy] = [fixture.copySecretTo(app, SECOND_VAULT), fixture.copySecretTo(app, COPY_VAULT)];
  const identity = { system: true };
  webApp = control.consumers.put(SUBSCRIPTION, {
    type: "Microsoft.Web/sites",
    name: `web-${app.name}`,
    kind: "app",
    identity,
    settings: { DB: `@Microsoft.KeyVault(VaultName=${VAULT};SecretName=${app.name})` },
    mayRead: [VAULT],
  });
  const secretIdentifier = `{uri:${VAULT}}/secrets/${app.name}`;
  apiManagement = control.consumers.put(SUBSCRIPTION, {
    type: "Microsoft.ApiManagement/service",
    name: `apim-${app.name}`,
    identity,
    children: {
      namedValues: [{ name: "db", properties: { displayName: "db", secret: true, keyVault: { secretIdentifier } } }],
    },
  });
  const dependencies = await connectAzureAndDevops(world, [SUBSCRIPTION]);
  const key = secretValueOf(app.name, "old");
  addConnection(world, { project: "Shop", appId: app.appId, key, name: `deploy-${app.name}` });
  await fixture.discover(app, second, copy);
  await fixture.confirm(app, second);
  await dependencies.discover();
});

const FAILURES: [how: string, action: FaultAction][] = [
  ["answers 503", { kind: "fail", status: 503 }],
  ["resets the connection", { kind: "reset" }],
  ["times out", { kind: "hang" }],
  ["answers 429", { kind: "throttle" }],
];

interface Source {
  what: string;
  match: () => Fault["match"] & object;
  /** How the error names the source. */
  name: () => string;
  /**
   * `fails`: a plan needs the source. `leftOut`: the plan names the copy, which no user confirmed, as not answered. `unread`: a plan
   * uses what the last discovery found.
   */
  outcome: "fails" | "leftOut" | "unread";
}
const SOURCES: Source[] = [
  { what: "the vault of the first place", match: () => ({ vault: VAULT }), name: () => VAULT, outcome: "fails" },
  {
    what: "the vault of the second place",
    match: () => ({ vault: SECOND_VAULT }),
    name: () => SECOND_VAULT,
    outcome: "fails",
  },
  { what: "a vault with a copy", match: () => ({ vault: COPY_VAULT }), name: () => COPY_VAULT, outcome: "leftOut" },
  {
    what: "Microsoft Graph",
    match: () => ({ operation: "graph.*" }),
    name: () => "Microsoft Graph",
    outcome: "fails",
  },
  {
    what: "Resource Graph",
    match: () => ({ operation: "arm.queryResourceGraph" }),
    name: () => "Resource Graph",
    outcome: "unread",
  },
  { what: "the web app", match: () => ({ resource: webApp }), name: () => `web-${app.name}`, outcome: "fails" },
  {
    what: "API Management",
    match: () => ({ resource: `${apiManagement}/namedValues/db` }),
    name: () => "API Management",
    outcome: "fails",
  },
  {
    what: "Azure DevOps",
    match: () => ({ operation: "devops.*" }),
    name: () => "service connection",
    outcome: "fails",
  },
];

const begin = () => fixture.rotations.begin(fixture.requestFor(app), BOSS);
/** Returns the places, consumers and warnings of a plan. */
const planOf = ({ publications, consumers = [], notUpdated, coverage = [] }: RotationRecord) => ({
  publications: publications.map(({ vaultName, state }) => `${vaultName} ${state}`).sort(),
  consumers: consumers.map(({ name, included }) => ({ name, included })),
  notUpdated: notUpdated.map(({ vaultName, reason }) => `${vaultName} ${reason}`),
  coverage,
});

/** Checks that a plan has all places and consumers, and names the copy with this reason. */
function expectComplete(row: RotationRecord, copyReason = "newPlace"): void {
  const { publications, consumers, notUpdated, coverage } = planOf(row);
  expect(publications).toEqual([`${VAULT} planned`, `${SECOND_VAULT} planned`].sort());
  expect(notUpdated).toEqual([`${COPY_VAULT} ${copyReason}`]);
  // No rotation has written the service connection, so a user must include it.
  expect(consumers.map(({ name, included }) => `${name} ${included}`).sort()).toEqual([
    `apim-${app.name} true`,
    `deploy-${app.name} false`,
    `web-${app.name} true`,
  ]);
  expect(coverage).toEqual([]);
}

const TITLES = {
  fails: "no rotation starts, and the error is a 503 that names it",
  leftOut: "the plan is complete and names it",
  unread: "the plan is complete",
};

describe.each(SOURCES)("while $what fails", ({ match, name, outcome }) => {
  test.each(FAILURES)(`${TITLES[outcome]}: it %s`, async (_, action) => {
    const fault = fixture.control.addFault({ match: match(), action });
    const planned = await begin().catch((error: unknown) => error as Error);
    const isRead = fixture.control.faults().some(({ id, happened }) => id === fault && happened > 0);
    expect(isRead).toBe(outcome !== "unread");
    if (outcome === "unread") return expectComplete(planned as RotationRecord);
    if (outcome === "leftOut") return expectComplete(planned as RotationRecord, "unanswered");
    expect(planned).toMatchObject({ code: "unavailable", status: 503, headers: { "Retry-After": expect.any(String) } });
    expect((planned as Error).message).toContain(name());
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    fixture.control.clearFaults();
    expectComplete(await begin());
  });
});
