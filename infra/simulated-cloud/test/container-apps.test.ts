import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, type ArmResponse, armClient } from "./arm-client.ts";

// Tests Container Apps and API Management in the simulated cloud: when they read new versions of the vault secrets that they
// reference.

const SUBSCRIPTION_ID = "66666666-6666-4666-8666-666666666666";
const CONTAINER_APPS_VERSION = "2025-07-01";
const API_MANAGEMENT_VERSION = "2024-05-01";
const MINUTE_MS = 60_000;
const systemIdentity = { system: true };
/** A secret of a container app that references a secret of kv-main. */
const reference = (secret: string) => ({ keyVaultUrl: `{uri:kv-main}/secrets/${secret}`, identity: "system" });
/** A template with one container, whose environment variables use these secrets of the app. */
const template = (...names: string[]) => ({
  containers: [
    { name: "main", image: "shop:1", env: names.map((name) => ({ name: name.toUpperCase(), secretRef: name })) },
  ],
});
/** Declares a container app with these secrets. */
const containerApp = (name: string, secrets: object[], more: object = {}) => ({
  type: "Microsoft.App/containerApps",
  name,
  identity: systemIdentity,
  properties: { configuration: { secrets, ...more }, template: template("db") },
});

let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [
        {
          name: "Main",
          id: SUBSCRIPTION_ID,
          vaults: [{ name: "kv-main", secrets: ["db", "other", "key", "header"].map((name) => ({ name })) }],
          resources: [
            containerApp("ca-shop", [
              { name: "db", ...reference("db") },
              { name: "literal", value: "of-nobody" },
            ]),
            containerApp("ca-two", [{ name: "db", ...reference("other") }], { activeRevisionsMode: "Multiple" }),
            {
              type: "Microsoft.App/containerApps",
              name: "ca-pinned",
              identity: systemIdentity,
              properties: {
                configuration: { secrets: [{ name: "db", ...reference("db/{version:kv-main/secrets/db}") }] },
              },
            },
            {
              type: "Microsoft.App/jobs",
              name: "job-night",
              identity: systemIdentity,
              properties: { configuration: { secrets: [{ name: "db", ...reference("db") }] } },
            },
            {
              type: "Microsoft.ApiManagement/service",
              name: "apim",
              identity: systemIdentity,
              children: {
                namedValues: [
                  {
                    name: "key",
                    properties: {
                      displayName: "key",
                      secret: true,
                      keyVault: { secretIdentifier: "{uri:kv-main}/secrets/key" },
                    },
                  },
                  { name: "plain", properties: { displayName: "plain", secret: true, value: "hidden-value" } },
                  { name: "open", properties: { displayName: "open", secret: false, value: "shown" } },
                ],
              },
            },
          ],
        },
      ],
    },
  });
  arm = await armClient(cloud);
});
afterAll(() => cloud?.stop());

const idOf = (name: string) => cloud.control.consumers.idOf(name);
/**
 * Returns one `[evidence, values]` for each place of a resource that uses a vault secret: the name of the place, and the values
 * that the place has had, oldest first. `undefined` means no value. Places are `secrets/NAME` of an app, `secrets/NAME of
 * REVISION` if the app has several active revisions, and the name of a named value of API Management.
 */
const valuesUsedBy = (name: string) =>
  cloud.control.consumers
    .values({ resource: idOf(name) })
    .map(({ evidence, values }) => [evidence, values.map(({ value }) => value)]);
/**
 * Moves the simulated clock to one second after the next tick, the moment at which Container Apps reads its secrets again.
 * Ticks are 30 minutes apart, at 13:53 and 43:53 (minutes and seconds) of each hour, as observed in Azure.
 */
function moveClockPastNextTick(): void {
  /** Time since the last tick. */
  const sinceTickMs = (Date.parse(cloud.control.now()) - (13 * 60 + 53) * 1000) % (30 * MINUTE_MS);
  cloud.control.moveClock(30 * MINUTE_MS - sinceTickMs + 1000);
}
/** Polls the Location of an accepted operation. Returns the response that ends it. */
async function waitForOperation(started: ArmResponse): Promise<ArmResponse> {
  expect(started.status).toBe(202);
  const location = new URL(started.headers.get("location")!);
  for (;;) {
    const answer = await arm("GET", location.pathname, location.searchParams.get("api-version")!);
    if (answer.status !== 202) return answer;
  }
}

test("at a tick, an app reads its secrets again, except those with a fixed version", async () => {
  const { control } = cloud;
  moveClockPastNextTick();
  const { body: app } = await arm("GET", idOf("ca-shop"), CONTAINER_APPS_VERSION);
  expect(app.properties.configuration.secrets).toEqual([
    { name: "db", keyVaultUrl: expect.stringMatching(/\/secrets\/db$/), identity: "system" },
    { name: "literal" },
  ]);
  control.putSecret("kv-main", { name: "db", value: "second" });
  control.moveClock(25 * MINUTE_MS);
  expect(valuesUsedBy("ca-shop")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
  moveClockPastNextTick();
  expect(valuesUsedBy("ca-shop")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second"]]]);
  expect(valuesUsedBy("job-night")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second"]]]);
  expect(valuesUsedBy("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
});

// `ca-two` runs in the mode Multiple, in which two revisions are active at once.
test("at a tick, all active revisions restart with the new value, and each has its own record", async () => {
  const { control } = cloud;
  const id = idOf("ca-two");
  moveClockPastNextTick();
  control.putSecret("kv-main", { name: "other", value: "second" });
  const { body } = await arm("GET", `${id}/revisions`, CONTAINER_APPS_VERSION);
  const [first, second] = body.value.map(({ name }: { name: string }) => name);
  const records = (...values: string[]) => [
    [`secrets/db of ${first}`, values],
    [`secrets/db of ${second}`, values],
  ];
  expect(valuesUsedBy("ca-two")).toEqual(records("value-of-other-in-kv-main"));
  moveClockPastNextTick();
  expect(valuesUsedBy("ca-two")).toEqual(records("value-of-other-in-kv-main", "second"));
  const { body: replicas } = await arm("GET", `${id}/revisions/${first}/replicas`, CONTAINER_APPS_VERSION);
  const { body: revision } = await arm("GET", `${id}/revisions/${first}`, CONTAINER_APPS_VERSION);
  expect(Date.parse(replicas.value[0].properties.createdTime)).toBeGreaterThan(
    Date.parse(revision.properties.createdTime),
  );
  expect(revision.properties).toMatchObject({ healthState: "Healthy", runningState: "Running" });
  expect((await arm("GET", `${id}/revisions/none`, CONTAINER_APPS_VERSION)).status).toBe(404);
});

test("a PATCH replaces all secrets of an app, and a revision keeps the old values until a new one replaces it", async () => {
  const { control } = cloud;
  const id = idOf("ca-pinned");
  const { body } = await arm("POST", `${idOf("ca-shop")}/listSecrets`, CONTAINER_APPS_VERSION);
  expect(body.value).toMatchObject([
    { name: "db", value: "second" },
    { name: "literal", value: "of-nobody" },
  ]);
  const patch = (secrets: object[], more: object = {}) =>
    arm("PATCH", id, CONTAINER_APPS_VERSION, { properties: { configuration: { secrets }, ...more } });
  const [{ keyVaultUrl: url }] = (await arm("GET", id, CONTAINER_APPS_VERSION)).body.properties.configuration.secrets;
  const latest = { name: "db", keyVaultUrl: url.replace(/\/[0-9a-f]{32}$/, ""), identity: "system" };
  expect((await patch([{ name: "db" }])).body.error.code).toBe("ContainerAppSecretInvalid");
  expect((await patch([], { template: template("db") })).body.error.code).toBe("ContainerAppSecretRefNotFound");
  const wrong = await patch([{ ...latest, keyVaultUrl: `${latest.keyVaultUrl}-none` }]);
  expect([wrong.status, wrong.body.error.message]).toEqual([400, expect.stringContaining("Unable to get value")]);

  const operation = await waitForOperation(await patch([latest]));
  expect(operation.body.properties.configuration.secrets).toEqual([latest]);
  expect(valuesUsedBy("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
  await waitForOperation(await patch([{ name: "new", value: "x" }], { template: template("new") }));
  expect(valuesUsedBy("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main", undefined]]]);
  const { body: revisions } = await arm("GET", `${id}/revisions`, CONTAINER_APPS_VERSION);
  expect(revisions.value.map(({ properties }: { properties: { active: boolean } }) => properties.active)).toEqual([
    false,
    true,
  ]);
  // A gap is a period in which a place had no working value. Since the PATCH, the app has no secret `db`, so its value is
  // absent.
  expect(control.consumers.gaps({ resource: id })).toMatchObject([{ why: "absent" }]);
});

test("a named value of API Management is read again on request and every 4 hours", async () => {
  const { control } = cloud;
  const service = idOf("apim");
  const { body } = await arm("GET", `${service}/namedValues`, API_MANAGEMENT_VERSION);
  expect(body.value.map(({ properties }: { properties: object }) => properties)).toMatchObject([
    { secret: true, keyVault: { secretIdentifier: expect.any(String), lastStatus: { code: "Success" } } },
    { displayName: "plain" },
    { displayName: "open", value: "shown" },
  ]);
  expect(JSON.stringify(body)).not.toContain("hidden-value");
  const id = `${service}/namedValues/key`;
  control.putSecret("kv-main", { name: "key", value: "second" });
  expect(valuesUsedBy("key")).toEqual([["key", ["value-of-key-in-kv-main"]]]);
  const refreshedBefore = Date.parse(
    (await arm("GET", id, API_MANAGEMENT_VERSION)).body.properties.keyVault.lastStatus.timeStampUtc,
  );
  const started = await arm("POST", `${id}/refreshSecret`, API_MANAGEMENT_VERSION);
  const status = new URL(started.headers.get("azure-asyncoperation")!);
  expect((await arm("GET", status.pathname, API_MANAGEMENT_VERSION)).body).toMatchObject({ status: "InProgress" });
  const operation = await waitForOperation(started);
  expect(Date.parse(operation.body.properties.keyVault.lastStatus.timeStampUtc)).toBeGreaterThanOrEqual(
    refreshedBefore,
  );
  expect(valuesUsedBy("key")).toEqual([["key", ["value-of-key-in-kv-main", "second"]]]);

  control.consumers.allow(service, "kv-main", false);
  await waitForOperation(await arm("POST", `${id}/refreshSecret`, API_MANAGEMENT_VERSION));
  expect((await arm("GET", id, API_MANAGEMENT_VERSION)).body.properties.keyVault.lastStatus.code).toBe("AccessDenied");
  control.consumers.allow(service, "kv-main", true);
  control.putSecret("kv-main", { name: "key", value: "third" });
  control.moveClock(4 * 60 * MINUTE_MS);
  expect(valuesUsedBy("key")[0]![1]).toEqual(["value-of-key-in-kv-main", "second", "third"]);
  expect((await arm("POST", `${service}/namedValues/plain/refreshSecret`, API_MANAGEMENT_VERSION)).status).toBe(400);
});
