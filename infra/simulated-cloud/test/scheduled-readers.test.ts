import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

// Tests Azure services that read vault secrets and certificates on a schedule of their own: Application Gateway, Front Door,
// Data Factory and App Configuration.

const HOUR_MS = 3_600_000;
const SUBSCRIPTION_ID = "77777777-7777-4777-8777-777777777777";
const systemIdentity = { identity: { system: true } };

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
              secrets: [{ name: "db" }, { name: "mail" }],
              certificates: [{ name: "www" }, { name: "shop" }],
            },
          ],
          resources: [
            {
              ...systemIdentity,
              type: "Microsoft.Network/applicationGateways",
              name: "agw",
              properties: {
                sslCertificates: [
                  // `free` uses the latest version, `bound` always the first one.
                  { name: "free", properties: { keyVaultSecretId: "{uri:kv-main}/secrets/www" } },
                  {
                    name: "bound",
                    properties: { keyVaultSecretId: "{uri:kv-main}/secrets/www/{version:kv-main/certificates/www}" },
                  },
                ],
              },
            },
            {
              ...systemIdentity,
              type: "Microsoft.Cdn/profiles",
              name: "afd",
              children: {
                secrets: [
                  {
                    name: "shop",
                    properties: {
                      parameters: {
                        type: "CustomerCertificate",
                        secretSource: { id: "{id:kv-main}/secrets/shop" },
                        useLatestVersion: true,
                      },
                    },
                  },
                ],
              },
            },
            {
              ...systemIdentity,
              type: "Microsoft.DataFactory/factories",
              name: "adf",
              children: {
                linkedservices: [
                  {
                    name: "vault",
                    properties: { type: "AzureKeyVault", typeProperties: { baseUrl: "{uri:kv-main}/" } },
                  },
                  {
                    name: "db",
                    properties: {
                      typeProperties: {
                        password: { type: "AzureKeyVaultSecret", store: { referenceName: "vault" }, secretName: "db" },
                      },
                    },
                  },
                ],
              },
            },
            {
              type: "Microsoft.AppConfiguration/configurationStores",
              name: "appcs-main",
              keyValues: [
                {
                  key: "mail",
                  value: '{"uri":"{uri:kv-main}/secrets/mail"}',
                  contentType: "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8",
                },
              ],
            },
            { type: "Microsoft.AppConfiguration/configurationStores", name: "appcs-sealed", denied: true },
          ],
        },
      ],
    },
  });
  arm = await armClient(cloud);
});
afterAll(() => cloud?.stop());

/**
 * Returns the number of values that each field of a resource has had so far. `evidence` is the field that uses a vault secret.
 */
function valueCounts(name: string, type?: string): Record<string, number> {
  const values = cloud.control.consumers.values({ resource: cloud.control.consumers.idOf(name, type) });
  return Object.fromEntries(values.map(({ evidence, values }) => [evidence, values.length]));
}

test("a gateway uses a new certificate within 4 hours and Front Door within 72 hours", async () => {
  const { control } = cloud;
  const secrets = `${control.consumers.idOf("afd")}/secrets`;
  const thumbprint = async () =>
    (await arm("GET", secrets, "2024-09-01")).body.value[0].properties.parameters.thumbprint;
  const firstThumbprint = await thumbprint();
  control.moveClock(HOUR_MS);
  control.putCertificate("kv-main", { name: "www" });
  control.putCertificate("kv-main", { name: "shop" });
  expect(valueCounts("agw")).toEqual({ "sslCertificates/free": 1, "sslCertificates/bound": 1 });
  control.moveClock(4 * HOUR_MS);
  expect(valueCounts("agw")).toEqual({ "sslCertificates/free": 2, "sslCertificates/bound": 1 });
  expect(await thumbprint()).toBe(firstThumbprint);
  // 72 hours after the new certificates.
  control.moveClock(68 * HOUR_MS);
  expect(await thumbprint()).not.toBe(firstThumbprint);
});

test("a data factory reads a secret at each use", async () => {
  const { control } = cloud;
  const linkedServiceType = "Microsoft.DataFactory/factories/linkedservices";
  expect(valueCounts("db", linkedServiceType)).toEqual({ password: 1 });
  control.putSecret("kv-main", { name: "db", value: "second" });
  expect(valueCounts("db", linkedServiceType)).toEqual({ password: 2 });
  const services = `${control.consumers.idOf("adf")}/linkedservices`;
  expect((await arm("GET", services, "2018-06-01")).body.value).toMatchObject([
    { name: "vault", type: linkedServiceType, properties: { type: "AzureKeyVault" } },
    { name: "db" },
  ]);
  control.consumers.change(control.consumers.idOf("adf"), { denied: true });
  const denied = await arm("GET", services, "2018-06-01");
  expect([denied.status, denied.body.error.message]).toEqual([
    403,
    expect.stringContaining(`'${linkedServiceType}/read'`),
  ]);
  const listed = await arm(
    "GET",
    `/subscriptions/${SUBSCRIPTION_ID}/providers/Microsoft.DataFactory/factories`,
    "2018-06-01",
  );
  expect(listed.body.value).toMatchObject([{ name: "adf" }]);
});

test("each App Configuration store serves its key-values at its own address", async () => {
  const { control, environment } = cloud;
  const { body } = await arm("GET", control.consumers.idOf("appcs-main"), "2024-05-01");
  const tokenQuery = new URLSearchParams({ "api-version": "2019-08-01", resource: "https://azconfig.localhost" });
  const tokenResponse = await fetch(`${environment.IDENTITY_ENDPOINT}?${tokenQuery}`, {
    headers: { "x-identity-header": environment.IDENTITY_HEADER! },
  });
  const { access_token: token } = (await tokenResponse.json()) as { access_token: string };
  const listKeyValues = (endpoint: string) =>
    fetch(`${endpoint}/kv?api-version=1.0`, { headers: { authorization: `Bearer ${token}` } });
  const list = (await (await listKeyValues(body.properties.endpoint)).json()) as {
    items: { value: string; content_type: string }[];
  };
  expect(list.items).toMatchObject([
    {
      key: "mail",
      value: expect.stringMatching(/^\{"uri":"https:\/\/kv-main\.vault\.localhost:\d+\/secrets\/mail"\}$/),
    },
  ]);
  expect((await listKeyValues(body.properties.endpoint.replace("appcs-main", "appcs-sealed"))).status).toBe(403);
  expect((await listKeyValues(body.properties.endpoint.replace("appcs-main", "appcs-none"))).status).toBe(404);
});

test("resources can be created, changed and deleted over the control API", async () => {
  const { controlUrl } = cloud;
  const callControlApi = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`${controlUrl}/resources${path}`, {
      method,
      ...(body && { body: JSON.stringify(body) }),
    });
    return (await answer.json()) as Record<string, unknown>;
  };
  const site = {
    type: "Microsoft.Web/sites",
    name: "app-new",
    ...systemIdentity,
    settings: { DB: "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)" },
  };
  const { id } = await callControlApi("POST", `?subscription=${SUBSCRIPTION_ID}`, site);
  expect(await callControlApi("GET", `/values?resource=${id}`)).toMatchObject([
    { evidence: "appsettings/DB", vault: "kv-main", values: [{}] },
  ]);
  expect(await callControlApi("PATCH", `/settings?id=${id}`, { DB: null, A: "1" })).toEqual({ A: "1" });
  // A gap is an interval in which the app had no working value. The PATCH removed the setting DB, so the value is absent.
  expect(await callControlApi("GET", `/gaps?resource=${id}`)).toMatchObject([{ why: "absent" }]);
  expect(await callControlApi("DELETE", `?id=${id}`)).toEqual({ removed: true });
  expect(await callControlApi("DELETE", `?id=${id}`)).toHaveProperty("error");
});
