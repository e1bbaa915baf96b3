import { afterAll, beforeAll, expect, test } from "vitest";
import { createAppConfiguration } from "../../shared/platform/azure/app-configuration.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { type FakeServer, startFakeServer } from "../azure/odd-server.ts";
import { fakeIdentity } from "../azure/services.ts";
import { configWith } from "./support.ts";

// Tests of reading settings from Azure App Configuration ("the store"), by its access key or with the service's identity.

let server: FakeServer;
beforeAll(async () => {
  server = await startFakeServer();
});
afterAll(() => server.stop());

const endpoint = () => `https://acme.azconfig.localhost:${server.port}`;
const secret = Buffer.from("the store's secret key").toString("base64");

const openStore = (environment: Record<string, string>) =>
  createAppConfiguration({ config: configWith(environment), identity: fakeIdentity });
const openWithKey = () =>
  openStore({ APP_CONFIGURATION_CONNECTION_STRING: `Endpoint=${endpoint()};Id=reader;Secret=${secret}` })!;

const TYPE = { "content-type": "application/vnd.microsoft.appconfig.kvset+json; charset=utf-8" };
const page = (values: Record<string, string>, next?: string) =>
  JSON.stringify({
    items: Object.entries(values).map(([key, value]) => ({ key: `credential-lifecycle:${key}`, label: null, value })),
    ...(next === undefined ? {} : { "@nextLink": next }),
  });

/** Returns the failure with which a call is rejected. Any other result fails the test. */
async function failureOf(call: Promise<unknown>): Promise<CloudFailure> {
  const error = await call.then(
    () => new Error("The call succeeded."),
    (reason: unknown) => reason,
  );
  if (error instanceof CloudFailure) return error;
  throw error;
}

test("there is no store without an address", () => {
  expect(openStore({})).toBeUndefined();
});

test("an invalid connection string stops the start and is not repeated", () => {
  const environment = { APP_CONFIGURATION_CONNECTION_STRING: `Endpoint=http://x;Secret=${secret}` };
  expect(() => openStore(environment)).toThrow("APP_CONFIGURATION_CONNECTION_STRING must look like");
  expect(() => openStore(environment)).not.toThrow(secret);
});

test("the service's keys without a label are read with the store's access key", async () => {
  server.setResponse((_, response) =>
    response.writeHead(200, TYPE).end(page({ logLevel: "DEBUG", discoveryMaxWorkers: " 7 " })),
  );
  expect(Object.fromEntries(await openWithKey().read())).toEqual({ logLevel: "DEBUG", discoveryMaxWorkers: "7" });
  expect(server.requests).toHaveLength(1);
  const [{ url, authorization }] = server.requests as [FakeServer["requests"][number]];
  const query = new URL(url, endpoint()).searchParams;
  // In queries of App Configuration, the label NUL selects keys without a label.
  expect([query.get("key"), query.get("label")]).toEqual(["credential-lifecycle:*", "\0"]);
  expect(authorization).toMatch(/^HMAC-SHA256 Credential=reader&SignedHeaders=/);
});

test("all pages are read", async () => {
  server.setResponse((_, response, count) =>
    response
      .writeHead(200, TYPE)
      .end(
        count === 1
          ? page({ logLevel: "ERROR" }, "/kv?api-version=2026-04-01&after=one")
          : page({ defaultThresholdDays: "9" }),
      ),
  );
  expect(Object.fromEntries(await openWithKey().read())).toEqual({ logLevel: "ERROR", defaultThresholdDays: "9" });
  expect(server.requests).toHaveLength(2);
});

test("a store that is configured without an access key is read with the service's identity", async () => {
  server.setResponse((_, response) => response.writeHead(200, TYPE).end(page({})));
  expect((await openStore({ APP_CONFIGURATION_ENDPOINT: endpoint() })!.read()).size).toBe(0);
  expect(server.requests[0]?.authorization).toMatch(/^Bearer token for https:\/\//);
});

test.each([
  [401, "unauthenticated"],
  [403, "accessDenied"],
  [500, "unreachable"],
  [429, "throttled"],
] as const)("a response with the status %i is the failure %s", async (status, code) => {
  server.setResponse((_, response) => response.writeHead(status, { ...TYPE, "retry-after-ms": "1" }).end("{}"));
  const failure = await failureOf(openWithKey().read());
  expect(failure.code).toBe(code);
  expect(`${failure.message} ${failure.remedy}`).not.toContain(secret);
  // At most one retry, because requests of users wait for the settings.
  expect(server.requests.length).toBeLessThanOrEqual(2);
});

test("a closed connection is the failure `unreachable`", async () => {
  server.setResponse((request) => request.socket.destroy());
  expect((await failureOf(openWithKey().read())).code).toBe("unreachable");
});
