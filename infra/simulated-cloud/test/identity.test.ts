import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { SdkClient } from "./sdk-client.ts";

// Tests how clients get tokens in the simulated cloud: from the managed identity endpoint and from Entra. The last test checks
// that the host names of the cloud resolve to this machine.

let cloud: Cloud;
let sdk: SdkClient;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
  sdk = await SdkClient.start(cloud);
});
afterAll(async () => {
  await sdk?.stop();
  await cloud?.stop();
});

const resourceManagerUrl = () => cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!;

describe("the managed identity endpoint", () => {
  test("returns a token for the requested resource", async () => {
    const claims = await sdk.call("identityToken", `${resourceManagerUrl()}/.default`);
    expect(claims).toMatchObject({ aud: resourceManagerUrl(), tid: cloud.app.tenantId, appid: expect.any(String) });
    expect(claims.exp - claims.iat).toBe(3600);
  });

  test("rejects a request without the app's header", async () => {
    const url = `${cloud.environment.IDENTITY_ENDPOINT}?api-version=2019-08-01&resource=https://vault.localhost`;
    expect((await fetch(url)).status).toBe(401);
    expect((await fetch(url, { headers: { "x-identity-header": "guess" } })).status).toBe(401);
  });

  test.each([
    ["", "400"],
    ["api-version=2019-08-01", "400"],
    ["api-version=2017-09-01&resource=https://vault.localhost", "400"],
    ["api-version=2019-08-01&resource=https://elsewhere.example", "400"],
    ["api-version=2019-08-01&resource=https://vault.localhost&client_id=someone-else", "400"],
  ])("responds to the query %j with %s and a message", async (query, status) => {
    const answer = await fetch(`${cloud.environment.IDENTITY_ENDPOINT}?${query}`, {
      headers: { "x-identity-header": cloud.environment.IDENTITY_HEADER! },
    });
    expect(String(answer.status)).toBe(status);
    expect(await answer.json()).toMatchObject({ statusCode: 400, message: expect.any(String) });
  });
});

describe("Entra", () => {
  test("returns a token to an application with the correct secret", async () => {
    const claims = await sdk.call("appToken", cloud.app, "https://vault.localhost/.default");
    expect(claims).toMatchObject({ aud: "https://vault.localhost", appid: cloud.app.clientId });
  });

  /** Requests a token with one wrong value. Returns the error. */
  const failToSignIn = (change: Partial<Cloud["app"]>, scope = "https://vault.localhost/.default") =>
    sdk.failure("appToken", { ...cloud.app, ...change }, scope);

  test.each([
    ["a wrong secret", () => failToSignIn({ clientSecret: "guess" }), "AADSTS7000215"],
    [
      "an unknown application",
      () => failToSignIn({ clientId: "11111111-1111-4111-8111-111111111111" }),
      "AADSTS700016",
    ],
    ["an unknown resource", () => failToSignIn({}, "https://elsewhere.example/.default"), "AADSTS500011"],
    ["a scope that is not a default one", () => failToSignIn({}, "https://vault.localhost/read"), "AADSTS1002012"],
    [
      "two resources at once",
      () => failToSignIn({}, `https://vault.localhost/.default ${resourceManagerUrl()}/.default`),
      "AADSTS70011",
    ],
  ])("rejects %s", async (_, attempt, code) => {
    expect((await attempt()).message).toContain(code);
  });
});

test.each(["kv-anything.vault.localhost", "127.0.0.1"])(
  "%s resolves to this machine with every lookup function",
  async (name) => {
    const loopback = { address: "127.0.0.1", family: 4 };
    expect(await sdk.call("lookups", name)).toEqual({
      promise: loopback,
      promiseAll: [loopback],
      callback: loopback,
      callbackAll: [loopback],
    });
  },
);
