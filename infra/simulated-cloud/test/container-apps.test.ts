import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmAnswer, type ArmCall, armClient } from "./arm-client.ts";

const ID = "66666666-6666-4666-8666-666666666666";
const [APP, API] = ["2025-07-01", "2024-05-01"];
const MINUTE_MS = 60_000;
const system = { system: true };
const reference = (secret: string) => ({ keyVaultUrl: `{uri:kv-main}/secrets/${secret}`, identity: "system" });
const template = (...names: string[]) => ({
  containers: [
    { name: "main", image: "shop:1", env: names.map((name) => ({ name: name.toUpperCase(), secretRef: name })) },
  ],
});
const container = (name: string, secrets: object[], more: object = {}) => ({
  type: "Microsoft.App/containerApps",
  name,
  identity: system,
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
          id: ID,
          vaults: [{ name: "kv-main", secrets: ["db", "other", "key", "header"].map((name) => ({ name })) }],
          resources: [
            container("ca-shop", [
              { name: "db", ...reference("db") },
              { name: "literal", value: "of-nobody" },
            ]),
            container("ca-two", [{ name: "db", ...reference("other") }], { activeRevisionsMode: "Multiple" }),
            {
              type: "Microsoft.App/containerApps",
              name: "ca-pinned",
              identity: system,
              properties: {
                configuration: { secrets: [{ name: "db", ...reference("db/{version:kv-main/secrets/db}") }] },
              },
            },
            {
              type: "Microsoft.App/jobs",
              name: "job-night",
              identity: system,
              properties: { configuration: { secrets: [{ name: "db", ...reference("db") }] } },
            },
            {
              type: "Microsoft.ApiManagement/service",
              name: "apim",
              identity: system,
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
const held = (name: string) =>
  cloud.control.consumers
    .values({ resource: idOf(name) })
    .map(({ evidence, values }) => [evidence, values.map(({ value }) => value)]);
/** Moves the simulated clock past the platform's next tick, at 13:53 past each half hour. */
function toNextTick(): void {
  const past = (Date.parse(cloud.control.now()) - (13 * 60 + 53) * 1000) % (30 * MINUTE_MS);
  cloud.control.moveClock(30 * MINUTE_MS - past + 1000);
}
async function finished(started: ArmAnswer): Promise<ArmAnswer> {
  expect(started.status).toBe(202);
  const place = new URL(started.headers.get("location")!);
  for (;;) {
    const answer = await arm("GET", place.pathname, place.searchParams.get("api-version")!);
    if (answer.status !== 202) return answer;
  }
}

test("a platform tick reads secrets without a version and restarts every active revision", async () => {
  const { control } = cloud;
  toNextTick();
  const { body: app } = await arm("GET", idOf("ca-shop"), APP);
  expect(app.properties.configuration.secrets).toEqual([
    { name: "db", keyVaultUrl: expect.stringMatching(/\/secrets\/db$/), identity: "system" },
    { name: "literal" },
  ]);
  control.putSecret("kv-main", { name: "db", value: "second" });
  control.moveClock(25 * MINUTE_MS);
  expect(held("ca-shop")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
  toNextTick();
  expect(held("ca-shop")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second"]]]);
  expect(held("job-night")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second"]]]);
  expect(held("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
});

test("a restart of one revision reads the new value for that revision only, or ends unhealthy", async () => {
  const { control } = cloud;
  const id = idOf("ca-two");
  toNextTick();
  control.putSecret("kv-main", { name: "other", value: "second" });
  const { body } = await arm("GET", `${id}/revisions`, APP);
  const [first, second] = body.value.map(({ name }: { name: string }) => name);
  expect((await arm("POST", `${id}/revisions/${first}/restart`, APP)).status).toBe(200);
  expect(held("ca-two")).toEqual([
    [`secrets/db of ${first}`, ["value-of-other-in-kv-main", "second"]],
    [`secrets/db of ${second}`, ["value-of-other-in-kv-main"]],
  ]);
  const { body: replicas } = await arm("GET", `${id}/revisions/${first}/replicas`, APP);
  const { body: revision } = await arm("GET", `${id}/revisions/${first}`, APP);
  expect(Date.parse(replicas.value[0].properties.createdTime)).toBeGreaterThan(
    Date.parse(revision.properties.createdTime),
  );
  control.consumers.plantContainerApp(id, { unhealthyRestarts: 1 });
  await arm("POST", `${id}/revisions/${second}/restart`, APP);
  const state = async () => (await arm("GET", `${id}/revisions/${second}`, APP)).body.properties;
  expect(await state()).toMatchObject({ healthState: "Unhealthy" });
  await arm("POST", `${id}/revisions/${second}/restart`, APP);
  expect(await state()).toMatchObject({ healthState: "Healthy", runningState: "Running" });
  expect((await arm("POST", `${id}/revisions/none/restart`, APP)).status).toBe(404);
});

test("a PATCH of an app's secrets replaces all of them, and revisions keep the old values until they restart", async () => {
  const { control } = cloud;
  const id = idOf("ca-pinned");
  const { body } = await arm("POST", `${idOf("ca-shop")}/listSecrets`, APP);
  expect(body.value).toMatchObject([
    { name: "db", value: "second" },
    { name: "literal", value: "of-nobody" },
  ]);
  const patch = (secrets: object[], more: object = {}) =>
    arm("PATCH", id, APP, { properties: { configuration: { secrets }, ...more } });
  const [{ keyVaultUrl: url }] = (await arm("GET", id, APP)).body.properties.configuration.secrets;
  const latest = { name: "db", keyVaultUrl: url.replace(/\/[0-9a-f]{32}$/, ""), identity: "system" };
  expect((await patch([{ name: "db" }])).body.error.code).toBe("ContainerAppSecretInvalid");
  expect((await patch([], { template: template("db") })).body.error.code).toBe("ContainerAppSecretRefNotFound");
  const wrong = await patch([{ ...latest, keyVaultUrl: `${latest.keyVaultUrl}-none` }]);
  expect([wrong.status, wrong.body.error.message]).toEqual([400, expect.stringContaining("Unable to get value")]);

  const done = await finished(await patch([latest]));
  expect(done.body.properties.configuration.secrets).toEqual([latest]);
  expect(held("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main"]]]);
  await arm("POST", `${id}/revisions/ca-pinned--0000001/restart`, APP);
  expect(held("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second"]]]);
  await finished(await patch([{ name: "new", value: "x" }], { template: template("new") }));
  expect(held("ca-pinned")).toEqual([["secrets/db", ["value-of-db-in-kv-main", "second", undefined]]]);
  const { body: revisions } = await arm("GET", `${id}/revisions`, APP);
  expect(revisions.value.map(({ properties }: { properties: { active: boolean } }) => properties.active)).toEqual([
    false,
    true,
  ]);
  expect(control.consumers.gaps({ resource: id })).toMatchObject([{ why: "absent" }]);
});

test("a named value is read again on request and every 4 hours", async () => {
  const { control } = cloud;
  const service = idOf("apim");
  const { body } = await arm("GET", `${service}/namedValues`, API);
  expect(body.value.map(({ properties }: { properties: object }) => properties)).toMatchObject([
    { secret: true, keyVault: { secretIdentifier: expect.any(String), lastStatus: { code: "Success" } } },
    { displayName: "plain" },
    { displayName: "open", value: "shown" },
  ]);
  expect(JSON.stringify(body)).not.toContain("hidden-value");
  const id = `${service}/namedValues/key`;
  control.putSecret("kv-main", { name: "key", value: "second" });
  expect(held("key")).toEqual([["key", ["value-of-key-in-kv-main"]]]);
  const before = Date.parse((await arm("GET", id, API)).body.properties.keyVault.lastStatus.timeStampUtc);
  const started = await arm("POST", `${id}/refreshSecret`, API);
  const status = new URL(started.headers.get("azure-asyncoperation")!);
  expect((await arm("GET", status.pathname, API)).body).toMatchObject({ status: "InProgress" });
  const done = await finished(started);
  expect(Date.parse(done.body.properties.keyVault.lastStatus.timeStampUtc)).toBeGreaterThanOrEqual(before);
  expect(held("key")).toEqual([["key", ["value-of-key-in-kv-main", "second"]]]);

  control.consumers.allow(service, "kv-main", false);
  await finished(await arm("POST", `${id}/refreshSecret`, API));
  expect((await arm("GET", id, API)).body.properties.keyVault.lastStatus.code).toBe("AccessDenied");
  control.consumers.allow(service, "kv-main", true);
  control.putSecret("kv-main", { name: "key", value: "third" });
  control.moveClock(4 * 60 * MINUTE_MS);
  expect(held("key")[0]![1]).toEqual(["value-of-key-in-kv-main", "second", "third"]);
  expect((await arm("POST", `${service}/namedValues/plain/refreshSecret`, API)).status).toBe(400);
});
