import { afterAll, beforeAll, expect, test } from "vitest";
import { createAppConfiguration } from "../../shared/platform/azure/app-configuration.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { type OddServer, startOddServer } from "../azure/odd-server.ts";
import { plainIdentity } from "../azure/services.ts";
import { configWith } from "./support.ts";

let server: OddServer;
beforeAll(async () => {
  server = await startOddServer();
});
afterAll(() => server.stop());

const endpoint = () => `https://acme.azconfig.localhost:${server.port}`;
const secret = Buffer.from("the store's secret key").toString("base64");

const open = (environment: Record<string, string>) =>
  createAppConfiguration({ config: configWith(environment), identity: plainIdentity });
const byKey = () => open({ APP_CONFIGURATION_CONNECTION_STRING: `Endpoint=${endpoint()};Id=reader;Secret=${secret}` })!;

const TYPE = { "content-type": "application/vnd.microsoft.appconfig.kvset+json; charset=utf-8" };
const page = (values: Record<string, string>, next?: string) =>
  JSON.stringify({
    items: Object.entries(values).map(([key, value]) => ({ key: `credential-lifecycle:${key}`, label: null, value })),
    ...(next === undefined ? {} : { "@nextLink": next }),
  });

async function failureOf(work: Promise<unknown>): Promise<CloudFailure> {
  const error = await work.then(
    () => new Error("It succeeded."),
    (reason: unknown) => reason,
  );
  if (error instanceof CloudFailure) return error;
  throw error;
}

test("without an address there is no store", () => {
  expect(open({})).toBeUndefined();
});

test("an invalid connection string stops the start and is not repeated", () => {
  const environment = { APP_CONFIGURATION_CONNECTION_STRING: `Endpoint=http://x;Secret=${secret}` };
  expect(() => open(environment)).toThrow("APP_CONFIGURATION_CONNECTION_STRING must look like");
  expect(() => open(environment)).not.toThrow(secret);
});

test("the service's own keys without a label are read with the store's key", async () => {
  server.answer((_, response) =>
    response.writeHead(200, TYPE).end(page({ logLevel: "DEBUG", discoveryMaxWorkers: " 7 " })),
  );
  expect(Object.fromEntries(await byKey().read())).toEqual({ logLevel: "DEBUG", discoveryMaxWorkers: "7" });
  expect(server.requests).toHaveLength(1);
  const [{ url, authorization }] = server.requests as [OddServer["requests"][number]];
  const query = new URL(url, endpoint()).searchParams;
  expect([query.get("key"), query.get("label")]).toEqual(["credential-lifecycle:*", "\0"]);
  expect(authorization).toMatch(/^HMAC-SHA256 Credential=reader&SignedHeaders=/);
});

test("every page is read", async () => {
  server.answer((_, response, count) =>
    response
      .writeHead(200, TYPE)
      .end(
        count === 1
          ? page({ logLevel: "ERROR" }, "/kv?api-version=2026-04-01&after=one")
          : page({ defaultThresholdDays: "9" }),
      ),
  );
  expect(Object.fromEntries(await byKey().read())).toEqual({ logLevel: "ERROR", defaultThresholdDays: "9" });
  expect(server.requests).toHaveLength(2);
});

test("by its address alone it is read with the service's identity", async () => {
  server.answer((_, response) => response.writeHead(200, TYPE).end(page({})));
  expect((await open({ APP_CONFIGURATION_ENDPOINT: endpoint() })!.read()).size).toBe(0);
  expect(server.requests[0]?.authorization).toMatch(/^Bearer token for https:\/\//);
});

test.each([
  [401, "unauthenticated"],
  [403, "accessDenied"],
  [500, "unreachable"],
  [429, "throttled"],
] as const)("with only an address it is read with the service's identity", async (status, code) => {
  server.answer((_, response) => response.writeHead(status, { ...TYPE, "retry-after-ms": "1" }).end("{}"));
  const failure = await failureOf(byKey().read());
  expect(failure.code).toBe(code);
  expect(`${failure.message} ${failure.remedy}`).not.toContain(secret);
  // One retry at most, because requests wait for it.
  expect(server.requests.length).toBeLessThanOrEqual(2);
});

test("no response is a failure", async () => {
  server.answer((request) => request.socket.destroy());
  expect((await failureOf(byKey().read())).code).toBe("unreachable");
});
