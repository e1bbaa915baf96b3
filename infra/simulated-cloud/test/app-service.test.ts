import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import type { CompanyChild } from "../company/resources.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

const ID = "44444444-4444-4444-8444-444444444444";
const VERSION = "2024-04-01";
const HOUR_MS = 3_600_000;
const system = { system: true };
const site = (name: string, settings: Record<string, string>, more: Partial<CompanyChild> = {}) => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app",
  identity: system,
  settings,
  ...more,
});
const names = (secret: string, vault = "kv-main") => `@Microsoft.KeyVault(VaultName=${vault};SecretName=${secret})`;
const uri = (tail: string, vault = "kv-main") => `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${tail})`;

let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [
        {
          name: "Main",
          id: ID,
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
            site("app-spellings", {
              A: uri("db/"),
              B: uri("db"),
              C: uri("{version:kv-main/secrets/db}".replace(/^/, "db/")),
              D: " @microsoft.keyvault( vaultname=kv-main ; secretname=db ) ",
              E: names("db", "kv-legacy"),
              F: "@Microsoft.KeyVault(SecretUri=https://nowhere)",
              G: names("db", "kv-none"),
              H: names("none"),
              I: uri("db/0123456789abcdef0123456789abcdef"),
              J: names("off"),
              K: names("db", "kv-walled"),
              L: names("db", "kv-inside"),
              M: "plain",
            }),
            site("app-no-identity", { A: names("db") }, { identity: {} }),
            site("app-refused", { A: names("db") }, { mayRead: [] }),
            site(
              "app-foreign",
              { A: names("db") },
              { properties: { keyVaultReferenceIdentity: "{identity:id-other}" } },
            ),
            site(
              "app-user",
              { A: names("db") },
              {
                identity: { user: ["id-reader"] },
                properties: { keyVaultReferenceIdentity: "{identity:id-reader}", state: "Running" },
              },
            ),
            site(
              "app-cached",
              { DB: names("db"), OTHER: "x" },
              {
                connectionStrings: { Store: { value: uri("db/"), type: "SQLAzure" } },
                slotSettings: ["OTHER", "Store"],
                children: { slots: [{ name: "staging", identity: system, settings: { DB: names("db") } }] },
              },
            ),
            site("app-put", { API: names("api"), COPY: "{value:kv-main/api}", KEEP: "1" }),
            site("app-a", { X: "1" }),
            site("app-b", { X: "1" }),
            site("app-c", { X: "1" }),
            site("app-denied", { A: names("db") }, { denied: true }),
          ],
          // Can read the vault resource, but not its secrets.
          roleAssignments: [
            {
              principal: `/subscriptions/${ID}/resourcegroups/rg-apps/providers/microsoft.web/sites/app-refused`,
              role: "Key Vault Reader",
              vault: "kv-main",
            },
          ],
        },
        { name: "Closed", denied: true, resources: [site("app-hidden", { A: names("db") })] },
      ],
    },
  });
  arm = await armClient(cloud);
});
afterEach(() => cloud.control.clearFaults());
afterAll(() => cloud?.stop());

const idOf = (name: string) => cloud.control.consumers.idOf(name);
const references = (id: string) => `${id}/config/configreferences/appsettings`;
const version = (secret: string) =>
  cloud.control.items("kv-main", "secrets").find(({ name }) => name === secret)!.version;
async function active(id: string, setting = "DB"): Promise<string | undefined> {
  const { body } = await arm("GET", `${references(id)}/${setting}`, VERSION);
  return body.properties.activeVersion;
}

test("the status of each reference follows from its vault, secret, version and identity", async () => {
  const { status, body } = await arm("GET", references(idOf("app-spellings")), VERSION);
  expect(status).toBe(200);
  const found = Object.fromEntries(
    body.value.map(({ name, properties }: { name: string; properties: { status: string } }) => [
      name,
      properties.status,
    ]),
  );
  expect(found).toEqual({
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
    id: `${references(idOf("app-spellings"))}/C`,
    name: "C",
    type: "Microsoft.Web/sites/config/configreferences",
    location: "westeurope",
    properties: {
      reference: expect.stringContaining(`/secrets/db/${version("db")})`),
      status: "Resolved",
      vaultName: "kv-main",
      secretName: "db",
      secretVersion: version("db"),
      identityType: "SystemAssigned",
      details: expect.any(String),
      source: "KeyVault",
      activeVersion: version("db"),
    },
  });
  const stateOf = async (app: string) => (await arm("GET", `${references(idOf(app))}/A`, VERSION)).body.properties;
  expect(await stateOf("app-no-identity")).toMatchObject({ status: "MSINotEnabled" });
  expect(await stateOf("app-refused")).toMatchObject({ status: "AccessToKeyVaultDenied" });
  expect(await stateOf("app-foreign")).toMatchObject({ status: "UnauthorizedClient" });
  expect(await stateOf("app-user")).toMatchObject({ status: "Resolved", identityType: "UserAssigned" });
  cloud.control.consumers.plantSite(idOf("app-user"), { statuses: { A: "Initialized" } });
  expect(await stateOf("app-user")).toMatchObject({ status: "Initialized" });
});

test("an app gets a new version after a refresh, a settings change or 24 hours, and not after a restart", async () => {
  const { control } = cloud;
  const [id, slot] = [idOf("app-cached"), idOf("staging")];
  const first = version("db");
  control.putSecret("kv-main", { name: "db", value: "second" });
  expect((await arm("POST", `${id}/restart?softRestart=true`, VERSION)).status).toBe(200);
  expect(await active(id)).toBe(first);
  expect(control.consumers.values({ resource: id }).map(({ values }) => values.length)).toEqual([1, 1]);

  const refreshed = await arm("POST", `${references(id)}/refresh`, VERSION);
  expect(refreshed.body.value).toMatchObject([{ name: "DB", properties: { activeVersion: version("db") } }]);
  const strings = await arm("GET", `${id}/config/configreferences/connectionstrings`, VERSION);
  expect(strings.body.value).toMatchObject([{ name: "Store", properties: { status: "Resolved" } }]);
  expect(await active(slot)).toBe(first);
  // The process has the values that were fetched when it started.
  const held = () => control.consumers.values({ resource: id })[0]!.values.map(({ value }) => value);
  expect(held()).toEqual(["value-of-db-in-kv-main"]);
  await arm("POST", `${id}/restart`, VERSION);
  expect(held()).toEqual(["value-of-db-in-kv-main", "second"]);

  control.moveClock(23.9 * HOUR_MS);
  expect(await active(slot)).toBe(first);
  control.moveClock(0.2 * HOUR_MS);
  expect(await active(slot)).toBe(version("db"));
  expect(control.consumers.values({ resource: slot })[0]!.values.map(({ value }) => value)).toEqual([
    "value-of-db-in-kv-main",
    "second",
  ]);

  control.consumers.plantSite(id, { staysOld: true });
  control.putSecret("kv-main", { name: "db", value: "third" });
  await arm("POST", `${references(id)}/refresh`, VERSION);
  expect(await active(id)).not.toBe(version("db"));
  expect((await arm("GET", `${id}/config/slotConfigNames`, VERSION)).body.properties).toMatchObject({
    appSettingNames: ["OTHER"],
    connectionStringNames: ["Store"],
  });
});

test("a PUT of settings replaces all of them, fetches references and restarts the app, and a test can add a concurrent change", async () => {
  const { control } = cloud;
  const id = idOf("app-put");
  const listed = await arm("POST", `${id}/config/appsettings/list`, VERSION);
  expect(listed.body.properties).toMatchObject({ API: names("api"), COPY: "value-of-api-in-kv-main", KEEP: "1" });
  control.putSecret("kv-main", { name: "api", value: "second" });
  const settings = { API: names("api"), COPY: "second" };
  const put = await arm("PUT", `${id}/config/appsettings`, VERSION, { properties: settings });
  expect([put.status, put.body.properties]).toEqual([200, settings]);
  expect(control.consumers.settings(id)).toEqual(settings);
  expect(await active(id, "API")).toBe(version("api"));
  expect(control.consumers.values({ resource: id }).map(({ values }) => values.at(-1)!.value)).toEqual([
    "second",
    "second",
  ]);
  for (const body of [{}, { properties: { A: null } }, { properties: [] }]) {
    expect((await arm("PUT", `${id}/config/appsettings`, VERSION, body)).status).toBe(400);
  }
  expect(control.consumers.settings(id)).toEqual(settings);

  control.consumers.plantSite(id, { changedAfterList: { settings: { NEW: "by somebody" }, times: 1 } });
  const before = await arm("POST", `${id}/config/appsettings/list`, VERSION);
  const after = await arm("POST", `${id}/config/appsettings/list`, VERSION);
  expect(before.body.properties).toEqual(settings);
  expect(after.body.properties).toEqual({ ...settings, NEW: "by somebody" });
  control.consumers.plantSite(id, { changedAfterPut: { settings: { KEEP: "by somebody" }, times: 1, after: 1 } });
  const again = async () => {
    await arm("PUT", `${id}/config/appsettings`, VERSION, { properties: settings });
    return control.consumers.settings(id);
  };
  expect([await again(), await again(), await again()]).toEqual([
    settings,
    { ...settings, KEEP: "by somebody" },
    settings,
  ]);
});

test("an app without references, a denied app and an unknown subscription return different errors", async () => {
  const answers = await Promise.all(
    ["app-a", "app-b", "app-c"].map((name) => arm("GET", references(idOf(name)), VERSION)),
  );
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 404]);
  expect(answers.find(({ status }) => status === 404)!.body).toMatchObject({ Code: "NotFound" });
  const gone = await arm("GET", references(`${idOf("app-a")}x`), VERSION);
  expect([gone.status, gone.body.error.code]).toEqual([404, "ResourceNotFound"]);

  const denied = await arm("GET", references(idOf("app-denied")), VERSION);
  expect([denied.status, denied.body.error.code]).toEqual([403, "AuthorizationFailed"]);
  expect(denied.body.error.message).toContain("'Microsoft.Web/sites/config/read'");
  expect((await arm("GET", idOf("app-denied"), VERSION)).status).toBe(200);
  expect((await arm("GET", references(idOf("app-hidden")), VERSION)).status).toBe(403);
  expect((await arm("GET", `/subscriptions/${ID}/providers/Microsoft.Web/sites`, VERSION)).body.value).toHaveLength(11);
  expect((await arm("GET", references(idOf("app-a")), "2015-01-01")).body.error.code).toBe("NoRegisteredProviderFound");
});

test("the control API reports the intervals in which a consumer held no working value", async () => {
  const { control } = cloud;
  const place = { vault: "kv-main", secret: "queue" };
  const id = control.consumers.put(ID, site("app-queue", { QUEUE: names("queue") }));
  control.consumers.setIssuer(place);
  expect(control.consumers.gaps(place)).toEqual([]);
  // The issuer accepts only the new value. The consumer holds the old one until the settings are refreshed.
  control.putSecret("kv-main", { name: "queue", value: "second" });
  control.consumers.accept(place, "second", true);
  expect(control.consumers.gaps(place)).toEqual([]);
  control.consumers.accept(place, "value-of-queue-in-kv-main", false);
  expect(control.consumers.gaps(place)).toMatchObject([
    { resource: id, evidence: "appsettings/QUEUE", why: "refused" },
  ]);
  expect(control.consumers.gaps(place)[0]).not.toHaveProperty("to");
  await arm("POST", `${references(id)}/refresh`, VERSION);
  await arm("POST", `${id}/restart`, VERSION);
  expect(control.consumers.gaps(place)).toEqual([expect.objectContaining({ why: "refused", to: expect.any(String) })]);
  // A setting that a PUT omits is gone, so the app has no value.
  await arm("PUT", `${id}/config/appsettings`, VERSION, { properties: {} });
  expect(control.consumers.gaps(place).at(-1)).toMatchObject({ why: "absent" });
});

test("calls are counted by resource, and a fault can match one resource", async () => {
  const { control } = cloud;
  control.resetCounts();
  const [one, two] = [idOf("app-a"), idOf("app-cached")];
  control.addFault({ match: { operation: "arm.restartSite", resource: two }, action: { kind: "fail", status: 500 } });
  expect((await arm("POST", `${one}/restart`, VERSION)).status).toBe(200);
  expect((await arm("POST", `${two}/restart`, VERSION)).status).toBe(500);
  expect((await arm("POST", `${two}/slots/staging/restart`, VERSION)).status).toBe(200);
  expect(control.consumers.calls()).toEqual({
    [one.toLowerCase()]: 1,
    [two.toLowerCase()]: 1,
    [`${two.toLowerCase()}/slots/staging`]: 1,
  });
});
