import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import type { CompanyChild } from "../company/resources.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

// Tests App Service in the simulated cloud: web apps whose app settings reference vault secrets (`@Microsoft.KeyVault(…)`). The
// requests go to the simulated Azure Resource Manager. `cloud.control` changes the cloud's state directly and shows which
// values each app uses.

const SUBSCRIPTION_ID = "44444444-4444-4444-8444-444444444444";
const API_VERSION = "2024-04-01";
const HOUR_MS = 3_600_000;
/** A resource with a system-assigned managed identity. */
const systemIdentity = { system: true };
/** Declares a web app with these app settings. */
const site = (name: string, settings: Record<string, string>, more: Partial<CompanyChild> = {}) => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app",
  identity: systemIdentity,
  settings,
  ...more,
});
/** A reference by names. */
const referenceByName = (secret: string, vault = "kv-main") =>
  `@Microsoft.KeyVault(VaultName=${vault};SecretName=${secret})`;
/** A reference by URI. `path` is the secret, optionally with a version. */
const referenceByUri = (path: string, vault = "kv-main") =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${path})`;

let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [
        {
          name: "Main",
          id: SUBSCRIPTION_ID,
          vaults: [
            {
              name: "kv-main",
              secrets: [{ name: "db" }, { name: "off", enabled: false }, { name: "api" }, { name: "queue" }],
            },
            { name: "kv-legacy", rbac: false, secrets: [{ name: "db" }] },
            { name: "kv-walled", reach: "firewalled", secrets: [{ name: "db" }] },
            { name: "kv-inside", reach: "privateOnly", secrets: [{ name: "db" }] },
          ],
          resources: [
            // Each setting spells a reference in another way, or has another reason to fail. The first test expects the
            // results.
            site("app-spellings", {
              A: referenceByUri("db/"),
              B: referenceByUri("db"),
              C: referenceByUri("db/{version:kv-main/secrets/db}"),
              D: " @microsoft.keyvault( vaultname=kv-main ; secretname=db ) ",
              E: referenceByName("db", "kv-legacy"),
              F: "@Microsoft.KeyVault(SecretUri=https://nowhere)",
              G: referenceByName("db", "kv-none"),
              H: referenceByName("none"),
              I: referenceByUri("db/0123456789abcdef0123456789abcdef"),
              J: referenceByName("off"),
              K: referenceByName("db", "kv-walled"),
              L: referenceByName("db", "kv-inside"),
              M: "plain",
            }),
            site("app-no-identity", { A: referenceByName("db") }, { identity: {} }),
            site("app-refused", { A: referenceByName("db") }, { mayRead: [] }),
            site(
              "app-foreign",
              { A: referenceByName("db") },
              { properties: { keyVaultReferenceIdentity: "{identity:id-other}" } },
            ),
            site(
              "app-user",
              { A: referenceByName("db") },
              {
                identity: { user: ["id-reader"] },
                properties: { keyVaultReferenceIdentity: "{identity:id-reader}", state: "Running" },
              },
            ),
            site(
              "app-cached",
              { DB: referenceByName("db"), OTHER: "x" },
              {
                connectionStrings: { Store: { value: referenceByUri("db/"), type: "SQLAzure" } },
                slotSettings: ["OTHER", "Store"],
                children: {
                  slots: [{ name: "staging", identity: systemIdentity, settings: { DB: referenceByName("db") } }],
                },
              },
            ),
            site("app-put", { API: referenceByName("api"), COPY: "{value:kv-main/api}", KEEP: "1" }),
            site("app-a", { X: "1" }),
            site("app-b", { X: "1" }),
            site("app-c", { X: "1" }),
            site("app-denied", { A: referenceByName("db") }, { denied: true }),
          ],
          // This role allows to read the vault, but not its secrets.
          roleAssignments: [
            {
              principal: `/subscriptions/${SUBSCRIPTION_ID}/resourcegroups/rg-apps/providers/microsoft.web/sites/app-refused`,
              role: "Key Vault Reader",
              vault: "kv-main",
            },
          ],
        },
        { name: "Closed", denied: true, resources: [site("app-hidden", { A: referenceByName("db") })] },
      ],
    },
  });
  arm = await armClient(cloud);
});
afterEach(() => cloud.control.clearFaults());
afterAll(() => cloud?.stop());

const idOf = (name: string) => cloud.control.consumers.idOf(name);
/** Path of the statuses of an app's references. */
const referencesPath = (id: string) => `${id}/config/configreferences/appsettings`;
/** Current version of a secret of kv-main. */
const versionOf = (secret: string) =>
  cloud.control.items("kv-main", "secrets").find(({ name }) => name === secret)!.version;
/** Returns the secret version that an app uses for a setting. */
async function activeVersion(id: string, setting = "DB"): Promise<string | undefined> {
  const { body } = await arm("GET", `${referencesPath(id)}/${setting}`, API_VERSION);
  return body.properties.activeVersion;
}

test("a reference has a status that shows whether it was resolved, or why not", async () => {
  const { status, body } = await arm("GET", referencesPath(idOf("app-spellings")), API_VERSION);
  expect(status).toBe(200);
  const referencesByName = Object.fromEntries(
    body.value.map(({ name, properties }: { name: string; properties: { status: string } }) => [
      name,
      properties.status,
    ]),
  );
  expect(referencesByName).toEqual({
    A: "Resolved",
    B: "Resolved",
    C: "Resolved",
    D: "Resolved",
    E: "Resolved",
    F: "InvalidSyntax",
    G: "VaultNotFound",
    H: "SecretNotFound",
    I: "SecretVersionNotFound",
    J: "OtherReasons",
    K: "AccessToKeyVaultDenied",
    L: "FetchTimedOut",
  });
  expect(body.value[2]).toEqual({
    id: `${referencesPath(idOf("app-spellings"))}/C`,
    name: "C",
    type: "Microsoft.Web/sites/config/configreferences",
    location: "westeurope",
    properties: {
      reference: expect.stringContaining(`/secrets/db/${versionOf("db")})`),
      status: "Resolved",
      vaultName: "kv-main",
      secretName: "db",
      secretVersion: versionOf("db"),
      identityType: "SystemAssigned",
      details: expect.any(String),
      source: "KeyVault",
      activeVersion: versionOf("db"),
    },
  });
  const stateOf = async (app: string) =>
    (await arm("GET", `${referencesPath(idOf(app))}/A`, API_VERSION)).body.properties;
  expect(await stateOf("app-no-identity")).toMatchObject({ status: "MSINotEnabled" });
  expect(await stateOf("app-refused")).toMatchObject({ status: "AccessToKeyVaultDenied" });
  expect(await stateOf("app-foreign")).toMatchObject({ status: "UnauthorizedClient" });
  expect(await stateOf("app-user")).toMatchObject({ status: "Resolved", identityType: "UserAssigned" });
  cloud.control.consumers.setSiteFault(idOf("app-user"), { statuses: { A: "Initialized" } });
  expect(await stateOf("app-user")).toMatchObject({ status: "Initialized" });
});

test("an app fetches a new secret version after a refresh or 24 hours, but not after a restart", async () => {
  const { control } = cloud;
  const [id, slot] = [idOf("app-cached"), idOf("staging")];
  const firstVersion = versionOf("db");
  control.putSecret("kv-main", { name: "db", value: "second" });
  expect((await arm("POST", `${id}/restart?softRestart=true`, API_VERSION)).status).toBe(200);
  expect(await activeVersion(id)).toBe(firstVersion);
  // The app setting and the connection string have had one value each.
  expect(control.consumers.values({ resource: id }).map(({ values }) => values.length)).toEqual([1, 1]);

  const refreshed = await arm("POST", `${referencesPath(id)}/refresh`, API_VERSION);
  expect(refreshed.body.value).toMatchObject([{ name: "DB", properties: { activeVersion: versionOf("db") } }]);
  const strings = await arm("GET", `${id}/config/configreferences/connectionstrings`, API_VERSION);
  expect(strings.body.value).toMatchObject([{ name: "Store", properties: { status: "Resolved" } }]);
  expect(await activeVersion(slot)).toBe(firstVersion);
  // The running process has the values that were fetched before it started, so it needs a restart after the refresh.
  const processValues = () => control.consumers.values({ resource: id })[0]!.values.map(({ value }) => value);
  expect(processValues()).toEqual(["value-of-db-in-kv-main"]);
  await arm("POST", `${id}/restart`, API_VERSION);
  expect(processValues()).toEqual(["value-of-db-in-kv-main", "second"]);

  // App Service fetches references again after 24 hours.
  control.moveClock(23.9 * HOUR_MS);
  expect(await activeVersion(slot)).toBe(firstVersion);
  control.moveClock(0.2 * HOUR_MS);
  expect(await activeVersion(slot)).toBe(versionOf("db"));
  expect(control.consumers.values({ resource: slot })[0]!.values.map(({ value }) => value)).toEqual([
    "value-of-db-in-kv-main",
    "second",
  ]);

  control.consumers.setSiteFault(id, { staysOld: true });
  control.putSecret("kv-main", { name: "db", value: "third" });
  await arm("POST", `${referencesPath(id)}/refresh`, API_VERSION);
  expect(await activeVersion(id)).not.toBe(versionOf("db"));
  expect((await arm("GET", `${id}/config/slotConfigNames`, API_VERSION)).body.properties).toMatchObject({
    appSettingNames: ["OTHER"],
    connectionStringNames: ["Store"],
  });

  // The second fetch follows 24 hours after the first.
  control.moveClock(24 * HOUR_MS);
  expect(await activeVersion(slot)).toBe(versionOf("db"));
});

test("a PUT of app settings replaces all of them, fetches references again and restarts the app", async () => {
  const { control } = cloud;
  const id = idOf("app-put");
  const settingsList = await arm("POST", `${id}/config/appsettings/list`, API_VERSION);
  expect(settingsList.body.properties).toMatchObject({
    API: referenceByName("api"),
    COPY: "value-of-api-in-kv-main",
    KEEP: "1",
  });
  control.putSecret("kv-main", { name: "api", value: "second" });
  const settings = { API: referenceByName("api"), COPY: "second" };
  const response = await arm("PUT", `${id}/config/appsettings`, API_VERSION, { properties: settings });
  expect([response.status, response.body.properties]).toEqual([200, settings]);
  expect(control.consumers.settings(id)).toEqual(settings);
  expect(await activeVersion(id, "API")).toBe(versionOf("api"));
  expect(control.consumers.values({ resource: id }).map(({ values }) => values.at(-1)!.value)).toEqual([
    "second",
    "second",
  ]);
  for (const body of [{}, { properties: { A: null } }, { properties: [] }]) {
    expect((await arm("PUT", `${id}/config/appsettings`, API_VERSION, body)).status).toBe(400);
  }
  expect(control.consumers.settings(id)).toEqual(settings);

  // A test can make the cloud change settings after a list or a PUT, as another person could.
  control.consumers.setSiteFault(id, { changedAfterList: { settings: { NEW: "by somebody" }, times: 1 } });
  const firstList = await arm("POST", `${id}/config/appsettings/list`, API_VERSION);
  const secondList = await arm("POST", `${id}/config/appsettings/list`, API_VERSION);
  expect(firstList.body.properties).toEqual(settings);
  expect(secondList.body.properties).toEqual({ ...settings, NEW: "by somebody" });
  control.consumers.setSiteFault(id, { changedAfterPut: { settings: { KEEP: "by somebody" }, times: 1, after: 1 } });
  const putAndRead = async () => {
    await arm("PUT", `${id}/config/appsettings`, API_VERSION, { properties: settings });
    return control.consumers.settings(id);
  };
  expect([await putAndRead(), await putAndRead(), await putAndRead()]).toEqual([
    settings,
    { ...settings, KEEP: "by somebody" },
    settings,
  ]);
});

test("reading references fails with a different error for an app without references, an unknown app and a denied app", async () => {
  // App Service answers apps without references in three different ways.
  const answers = await Promise.all(
    ["app-a", "app-b", "app-c"].map((name) => arm("GET", referencesPath(idOf(name)), API_VERSION)),
  );
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 404]);
  expect(answers.find(({ status }) => status === 404)!.body).toMatchObject({ Code: "NotFound" });
  const unknownApp = await arm("GET", referencesPath(`${idOf("app-a")}x`), API_VERSION);
  expect([unknownApp.status, unknownApp.body.error.code]).toEqual([404, "ResourceNotFound"]);

  const denied = await arm("GET", referencesPath(idOf("app-denied")), API_VERSION);
  expect([denied.status, denied.body.error.code]).toEqual([403, "AuthorizationFailed"]);
  expect(denied.body.error.message).toContain("'Microsoft.Web/sites/config/read'");
  expect((await arm("GET", idOf("app-denied"), API_VERSION)).status).toBe(200);
  expect((await arm("GET", referencesPath(idOf("app-hidden")), API_VERSION)).status).toBe(403);
  // The list has all apps of the subscription, but no slots.
  expect(
    (await arm("GET", `/subscriptions/${SUBSCRIPTION_ID}/providers/Microsoft.Web/sites`, API_VERSION)).body.value,
  ).toHaveLength(11);
  expect((await arm("GET", referencesPath(idOf("app-a")), "2015-01-01")).body.error.code).toBe(
    "NoRegisteredProviderFound",
  );
});

test("the control API reports gaps: intervals in which a consumer used no working value", async () => {
  const { control } = cloud;
  const secret = { vault: "kv-main", secret: "queue" };
  const id = control.consumers.put(SUBSCRIPTION_ID, site("app-queue", { QUEUE: referenceByName("queue") }));
  control.consumers.setIssuer(secret);
  expect(control.consumers.gaps(secret)).toEqual([]);
  // The issuer is the system that checks the secret. It accepts the new value, then rejects the old one, which the app still
  // uses.
  control.putSecret("kv-main", { name: "queue", value: "second" });
  control.consumers.accept(secret, "second", true);
  expect(control.consumers.gaps(secret)).toEqual([]);
  control.consumers.accept(secret, "value-of-queue-in-kv-main", false);
  expect(control.consumers.gaps(secret)).toMatchObject([
    // `evidence` is the place that uses the secret. `refused` means that the issuer does not accept the value.
    { resource: id, evidence: "appsettings/QUEUE", why: "refused" },
  ]);
  // `to` is missing while the gap lasts.
  expect(control.consumers.gaps(secret)[0]).not.toHaveProperty("to");
  await arm("POST", `${referencesPath(id)}/refresh`, API_VERSION);
  await arm("POST", `${id}/restart`, API_VERSION);
  expect(control.consumers.gaps(secret)).toEqual([expect.objectContaining({ why: "refused", to: expect.any(String) })]);
  // The PUT removes the setting, so the app has no value.
  await arm("PUT", `${id}/config/appsettings`, API_VERSION, { properties: {} });
  expect(control.consumers.gaps(secret).at(-1)).toMatchObject({ why: "absent" });
});

test("a value is judged by the secret that the setting referred to at that time", async () => {
  const { control } = cloud;
  control.putSecret("kv-main", { name: "earlier", value: "one" });
  control.putSecret("kv-main", { name: "later", value: "two" });
  const id = control.consumers.put(SUBSCRIPTION_ID, site("app-moved", { MOVED: referenceByName("earlier") }));
  await arm("PUT", `${id}/config/appsettings`, API_VERSION, { properties: { MOVED: referenceByName("later") } });
  expect(control.consumers.values({ resource: id })).toMatchObject([
    { secret: "later", values: [{ value: "one" }, { value: "two" }] },
  ]);
  expect(control.consumers.gaps({ resource: id })).toEqual([]);
});

test("the control API counts requests by resource, and a fault can match one resource", async () => {
  const { control } = cloud;
  control.resetCounts();
  const [id, failingId] = [idOf("app-a"), idOf("app-cached")];
  control.addFault({
    match: { operation: "arm.restartSite", resource: failingId },
    action: { kind: "fail", status: 500 },
  });
  expect((await arm("POST", `${id}/restart`, API_VERSION)).status).toBe(200);
  expect((await arm("POST", `${failingId}/restart`, API_VERSION)).status).toBe(500);
  expect((await arm("POST", `${failingId}/slots/staging/restart`, API_VERSION)).status).toBe(200);
  expect(control.consumers.calls()).toEqual({
    [id.toLowerCase()]: 1,
    [failingId.toLowerCase()]: 1,
    [`${failingId.toLowerCase()}/slots/staging`]: 1,
  });
});
