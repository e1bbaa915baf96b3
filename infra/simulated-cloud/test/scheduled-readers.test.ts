import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

const HOUR_MS = 3_600_000;
const ID = "77777777-7777-4777-8777-777777777777";
const system = { identity: { system: true } };

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
              secrets: [{ name: "db" }, { name: "mail" }],
              certificates: [{ name: "www" }, { name: "shop" }],
            },
          ],
          resources: [
            {
              ...system,
              type: "Microsoft.Network/applicationGateways",
              name: "agw",
              properties: {
                sslCertificates: [
                  { name: "free", properties: { keyVaultSecretId: "{uri:kv-main}/secrets/www" } },
                  {
                    name: "bound",
                    properties: { keyVaultSecretId: "{uri:kv-main}/secrets/www/{version:kv-main/certificates/www}" },
                  },
                ],
              },
            },
            {
              ...system,
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
              ...system,
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

/** Returns the number of values that each field held. */
function held(name: string, type?: string): Record<string, number> {
  const values = cloud.control.consumers.values({ resource: cloud.control.consumers.idOf(name, type) });
  return Object.fromEntries(values.map(({ evidence, values }) => [evidence, values.length]));
}

test("gateways use a new certificate within 4 hours, Front Door within 72, and a pinned version never changes", async () => {
  const { control } = cloud;
  const secrets = `${control.consumers.idOf("afd")}/secrets`;
  const thumbprint = async () =>
    (await arm("GET", secrets, "2024-09-01")).body.value[0].properties.parameters.thumbprint;
  const before = await thumbprint();
  control.moveClock(HOUR_MS);
  control.putCertificate("kv-main", { name: "www" });
  control.putCertificate("kv-main", { name: "shop" });
  expect(held("agw")).toEqual({ "sslCertificates/free": 1, "sslCertificates/bound": 1 });
  control.moveClock(4 * HOUR_MS);
  expect(held("agw")).toEqual({ "sslCertificates/free": 2, "sslCertificates/bound": 1 });
  expect(await thumbprint()).toBe(before);
  control.moveClock(68 * HOUR_MS);
  expect(await thumbprint()).not.toBe(before);
});

test("a data factory reads a secret at each run, and is listed even if it is denied", async () => {
  const { control } = cloud;
  const of = "Microsoft.DataFactory/factories/linkedservices";
  expect(held("db", of)).toEqual({ password: 1 });
  control.putSecret("kv-main", { name: "db", value: "second" });
  expect(held("db", of)).toEqual({ password: 2 });
  const services = `${control.consumers.idOf("adf")}/linkedservices`;
  expect((await arm("GET", services, "2018-06-01")).body.value).toMatchObject([
    { name: "vault", type: of, properties: { type: "AzureKeyVault" } },
    { name: "db" },
  ]);
  control.consumers.change(control.consumers.idOf("adf"), { denied: true });
  const denied = await arm("GET", services, "2018-06-01");
  expect([denied.status, denied.body.error.message]).toEqual([403, expect.stringContaining(`'${of}/read'`)]);
  const listed = await arm("GET", `/subscriptions/${ID}/providers/Microsoft.DataFactory/factories`, "2018-06-01");
  expect(listed.body.value).toMatchObject([{ name: "adf" }]);
});

test("each App Configuration store serves its key-values at its own address", async () => {
  const { control, environment } = cloud;
  const { body } = await arm("GET", control.consumers.idOf("appcs-main"), "2024-05-01");
  const ask = new URLSearchParams({ "api-version": "2019-08-01", resource: "https://azconfig.localhost" });
  const answered = await fetch(`${environment.IDENTITY_ENDPOINT}?${ask}`, {
    headers: { "x-identity-header": environment.IDENTITY_HEADER! },
  });
  const { access_token: token } = (await answered.json()) as { access_token: string };
  const get = (endpoint: string) =>
    fetch(`${endpoint}/kv?api-version=1.0`, { headers: { authorization: `Bearer ${token}` } });
  const list = (await (await get(body.properties.endpoint)).json()) as {
    items: { value: string; content_type: string }[];
  };
  expect(list.items).toMatchObject([
    {
      key: "mail",
      value: expect.stringMatching(/^\{"uri":"https:\/\/kv-main\.vault\.localhost:\d+\/secrets\/mail"\}$/),
    },
  ]);
  expect((await get(body.properties.endpoint.replace("appcs-main", "appcs-sealed"))).status).toBe(403);
  expect((await get(body.properties.endpoint.replace("appcs-main", "appcs-none"))).status).toBe(404);
});

test("the control API has the same operations over HTTP", async () => {
  const { controlUrl } = cloud;
  const call = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`${controlUrl}/resources${path}`, {
      method,
      ...(body && { body: JSON.stringify(body) }),
    });
    return (await answer.json()) as Record<string, unknown>;
  };
  const site = {
    type: "Microsoft.Web/sites",
    name: "app-new",
    ...system,
    settings: { DB: "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)" },
  };
  const { id } = await call("POST", `?subscription=${ID}`, site);
  expect(await call("GET", `/values?resource=${id}`)).toMatchObject([
    { evidence: "appsettings/DB", vault: "kv-main", values: [{}] },
  ]);
  expect(await call("PATCH", `/settings?id=${id}`, { DB: null, A: "1" })).toEqual({ A: "1" });
  expect(await call("GET", `/gaps?resource=${id}`)).toMatchObject([{ why: "absent" }]);
  expect(await call("DELETE", `?id=${id}`)).toEqual({ removed: true });
  expect(await call("DELETE", `?id=${id}`)).toHaveProperty("error");
});
