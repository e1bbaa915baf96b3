import type { ServerResponse } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { CALL_LIMITS, type CallLimits, clientOptions } from "../../shared/platform/azure/calls.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createKeyVaults, type VaultClient } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import {
  collectItems,
  collectVaults,
  expectFailure,
  fakeIdentity,
  recordingLog,
  SHORT_WAITS,
  testConfig,
} from "./services.ts";

/**
 * Tests of the policies that every call to Azure passes: tokens, retries, time limits, redirects and the check of responses.
 */

let server: FakeServer;

beforeAll(async () => {
  server = await startFakeServer();
});
afterAll(() => server.stop());

const JSON_TYPE = { "content-type": "application/json; charset=utf-8" };

function createServices(limits: Partial<CallLimits> = {}) {
  const config = testConfig({
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  return { config, identity: fakeIdentity, log: recordingLog(), limits: { ...SHORT_WAITS, ...limits } };
}

const addressOf = (name: string) => `https://${name}.vault.localhost:${server.port}`;

function openVault(limits?: Partial<CallLimits>): VaultClient {
  return createKeyVaults(createServices(limits)).open({ name: "kv-odd", vaultUri: `${addressOf("kv-odd")}/` });
}

const secretPage = (names: string[], nextLink?: string) =>
  JSON.stringify({ value: names.map((name) => ({ id: `${addressOf("kv-odd")}/secrets/${name}` })), nextLink });

test("the first request has a token with the scope of the vault domain", async () => {
  server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"])));
  expect((await collectItems(openVault().secrets())).map(({ name }) => name)).toEqual(["a"]);
  expect(server.requests.map(({ authorization }) => authorization)).toEqual([
    "Bearer token for https://vault.localhost/.default",
  ]);
});

test.each([
  ["another host", () => `https://kv-other.vault.localhost:${server.port}/secrets?page=2`],
  ["another port", () => `https://kv-odd.vault.localhost:${server.port === 443 ? 444 : 443}/secrets?page=2`],
  ["plain http", () => `http://kv-odd.vault.localhost:${server.port}/secrets?page=2`],
  ["credentials before the host", () => `https://x:y@kv-odd.vault.localhost:${server.port}/secrets?page=2`],
  [
    "a host that only has the same prefix",
    () => `https://kv-odd.vault.localhost.evil.localhost:${server.port}/secrets`,
  ],
])("a next page at %s fails without a request to that address", async (_, link) => {
  server.setResponse((_request, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"], link())));
  const failure = await expectFailure(collectItems(openVault().secrets()));
  expect(failure.code).toBe("foreignHost");
  expect(server.requests).toHaveLength(1);
});

test("a next page whose path is no list fails", async () => {
  const link = `${addressOf("kv-odd")}/secrets/a/backup`;
  server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"], link)));
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("pages whose links form a circle fail", async () => {
  const [first, second] = [`${addressOf("kv-odd")}/secrets?p=1`, `${addressOf("kv-odd")}/secrets?p=2`];
  server.setResponse((request, response) =>
    response.writeHead(200, JSON_TYPE).end(secretPage(["a"], request.url?.includes("p=1") ? second : first)),
  );
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(3);
});

test("a redirect is not followed", async () => {
  server.setResponse((_, response) => response.writeHead(307, { location: `${addressOf("kv-thief")}/secrets` }).end());
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("an authentication challenge causes neither another token request nor a retry", async () => {
  server.setResponse((_, response) =>
    response
      .writeHead(401, {
        ...JSON_TYPE,
        "www-authenticate": `Bearer authorization="https://evil.localhost/x", resource="https://vault.localhost"`,
      })
      .end(JSON.stringify({ error: { code: "Unauthorized", message: "no" } })),
  );
  const failure = await expectFailure(collectItems(openVault().secrets()));
  expect([failure.code, failure.cloudCode]).toEqual(["unauthenticated", "Unauthorized"]);
  expect(server.requests).toHaveLength(1);
});

test.each([
  [
    "403 by roles",
    403,
    { code: "Forbidden", innererror: { code: "ForbiddenByRbac" } },
    "accessDenied",
    "Key Vault Reader",
  ],
  [
    "403 by access policies",
    403,
    { code: "Forbidden", innererror: { code: "AccessDenied" } },
    "accessDenied",
    "getrotationpolicy",
  ],
  [
    "403 by the firewall",
    403,
    { code: "Forbidden", innererror: { code: "ForbiddenByFirewall" } },
    "firewall",
    "networking",
  ],
  [
    "403 without private link",
    403,
    { code: "Forbidden", innererror: { code: "ForbiddenByConnection" } },
    "firewall",
    "private endpoint",
  ],
  ["404", 404, { code: "VaultNotFound" }, "notFound", "deleted"],
  ["400", 400, { code: "BadParameter" }, "badResponse", "endpoints"],
] as const)("%s has its own code and remedy and is not retried", async (_, status, error, code, remedy) => {
  server.setResponse((_request, response) =>
    response.writeHead(status, JSON_TYPE).end(JSON.stringify({ error: { ...error, message: "do not repeat me" } })),
  );
  const failure = await expectFailure(collectItems(openVault().keys()));
  expect(failure.code).toBe(code);
  expect(failure.remedy).toContain(remedy);
  expect(failure.message).toContain("list keys (key vault kv-odd)");
  expect(server.requests).toHaveLength(1);
});

test("a failure contains neither text of the response nor a token", async () => {
  server.setResponse((_, response) =>
    response.writeHead(403, JSON_TYPE).end(JSON.stringify({ error: { code: "planted secret!", message: "planted" } })),
  );
  const failure = await expectFailure(openVault().key("a"));
  const everything = `${failure.stack} ${JSON.stringify(failure)} ${JSON.stringify({ ...failure })}`;
  expect(everything).not.toMatch(/planted|token for/);
  expect(failure.cause).toBeUndefined();
});

test("a throttled call is retried and succeeds", async () => {
  server.setResponse((_, response, count) =>
    count < 3
      ? response.writeHead(429, { "retry-after": "0" }).end()
      : response.writeHead(200, JSON_TYPE).end(secretPage(["a"])),
  );
  expect(await collectItems(openVault().secrets())).toHaveLength(1);
  expect(server.requests).toHaveLength(3);
});

test("a request with status 429 and no Retry-After is sent five times", async () => {
  server.setResponse((_, response) => response.writeHead(429).end());
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("throttled");
  expect(server.requests).toHaveLength(5);
});

test.each([
  ["seconds", () => "600"],
  ["a date", () => new Date(Date.now() + 600_000).toUTCString()],
])("a Retry-After beyond the limit, given as %s, fails at once", async (_, retryAfter) => {
  server.setResponse((_request, response) => response.writeHead(503, { "retry-after": retryAfter() }).end());
  const failure = await expectFailure(collectItems(openVault().secrets()));
  expect(failure.code).toBe("throttled");
  expect(failure.retryAfterSeconds).toBeGreaterThan(590);
  expect(failure.retryAfterSeconds).toBeLessThanOrEqual(601);
  expect(server.requests).toHaveLength(1);
});

test.each([{}, { "retry-after": "0" }])(
  "retries end when the sum of their waits exceeds the limit: %j",
  async (headers) => {
    server.setResponse((_, response) => response.writeHead(429, headers).end());
    // Each wait is at least 5 ms, so the third wait exceeds the limit at the latest.
    await expectFailure(collectItems(openVault({ firstWaitMs: 10, totalWaitMs: 14 }).secrets()));
    expect(server.requests.length).toBeLessThan(5);
  },
);

test("retries are logged without the token", async () => {
  const parts = createServices();
  server.setResponse((_, response) => response.writeHead(500).end());
  await expectFailure(
    collectItems(
      createKeyVaults(parts)
        .open({ name: "kv-odd", vaultUri: addressOf("kv-odd") })
        .secrets(),
    ),
  );
  expect(parts.log.lines).toHaveLength(2);
  expect(parts.log.lines.join()).toContain("unreachable");
  expect(parts.log.lines.join()).not.toMatch(/token for|authorization/i);
});

test.each([500, 502, 503, 504, 408])(
  "a request with status %i is sent three times and fails with unreachable",
  async (status) => {
    server.setResponse((_, response) => response.writeHead(status).end("<html>"));
    expect((await expectFailure(collectItems(openVault().certificates()))).code).toBe("unreachable");
    expect(server.requests).toHaveLength(3);
  },
);

test("a request whose connection is reset is sent three times and fails with unreachable", async () => {
  server.setResponse((request) => request.socket.destroy());
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("unreachable");
  expect(server.requests).toHaveLength(3);
});

test("a host name that does not resolve fails with unreachable", async () => {
  // Some resolvers are slow for unknown names.
  const parts = createServices({ requestTimeoutMs: 2_000 });
  const config = { ...parts.config, cloud: { ...parts.config.cloud, keyVaultSuffix: "vault.invalid" } };
  const unreachableVault = createKeyVaults({ ...parts, config }).open({
    name: "kv-gone",
    vaultUri: "https://kv-gone.vault.invalid/",
  });
  const failure = await expectFailure(collectItems(unreachableVault.secrets()));
  expect(failure.code).toBe("unreachable");
  expect(failure.remedy).toContain("DNS");
});

test("a closed port fails with unreachable", async () => {
  const unreachableVault = createKeyVaults(createServices()).open({
    name: "kv-gone",
    vaultUri: "https://kv-gone.vault.localhost:1/",
  });
  const failure = await expectFailure(collectItems(unreachableVault.secrets()));
  expect([failure.code, failure.cloudCode]).toEqual(["unreachable", "ECONNREFUSED"]);
});

test("a host with the certificate of another host fails with unreachable", async () => {
  const config = testConfig({ AZURE_RESOURCE_MANAGER_ENDPOINT: `https://unnamed.localhost:${server.port}` });
  const failure = await expectFailure(createResourceManager({ ...createServices(), config }).subscriptions());
  expect([failure.code, failure.cloudCode]).toEqual(["unreachable", "ERR_TLS_CERT_ALTNAME_INVALID"]);
});

test.each([
  ["before the headers", () => {}],
  [
    "in the middle of the body",
    (response: ServerResponse) => {
      response.writeHead(200, JSON_TYPE);
      response.write(secretPage(["a"]).slice(0, 20));
    },
  ],
] as const)("a request to a server that hangs %s ends at the time limit", async (_, stopResponding) => {
  // The first request also loads libraries and certificates, which takes longer than this time limit.
  server.setResponse((_request, response) => response.writeHead(200, JSON_TYPE).end(secretPage([])));
  await collectItems(openVault().secrets());
  server.setResponse((_request, response) => stopResponding(response));
  const failure = await expectFailure(collectItems(openVault({ requestTimeoutMs: 500 }).secrets()));
  expect(failure.code).toBe("unreachable");
  expect(failure.message).toContain("within 0.5 s");
  expect(server.requests).toHaveLength(3);
});

test("an abort ends a call that hangs", async () => {
  const controller = new AbortController();
  server.setResponse(() => controller.abort());
  expect((await expectFailure(collectItems(openVault().secrets(controller.signal)))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(1);
});

test("an abort ends the wait before a retry", async () => {
  const controller = new AbortController();
  server.setResponse((_, response) => {
    response.writeHead(429, { "retry-after": "30" }).end();
    setTimeout(() => controller.abort(), 50);
  });
  expect((await expectFailure(collectItems(openVault().secrets(controller.signal)))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(1);
});

test("a call whose signal is already aborted sends no request", async () => {
  server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"])));
  expect((await expectFailure(openVault().key("a", AbortSignal.abort()))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(0);
});

test.each([
  ["an HTML page", { "content-type": "text/html" }, "<html>Sign in</html>"],
  ["JSON cut short", JSON_TYPE, '{"value":[{"id":"https://'],
  ["an empty body", JSON_TYPE, ""],
  ["JSON that is no object", JSON_TYPE, "null"],
  ["an object without a list", JSON_TYPE, "{}"],
  ["a list of null", JSON_TYPE, '{"value":[null]}'],
  ["an id of another kind", JSON_TYPE, '{"value":[{"id":"https://kv-odd.vault.localhost/keys/a"}]}'],
  ["an expiry that is no number", JSON_TYPE, '{"value":[{"id":"https://v/secrets/a","attributes":{"exp":"soon"}}]}'],
  ["a link that is no text", JSON_TYPE, '{"value":[],"nextLink":7}'],
] as const)("%s instead of a list is a bad response and is not retried", async (_, headers, body) => {
  server.setResponse((_request, response) => response.writeHead(200, headers).end(body));
  expect((await expectFailure(collectItems(openVault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("a call with any JSON response succeeds or throws a CloudFailure", async () => {
  const id = (kind: string) =>
    fc.constantFrom(`${addressOf("kv-odd")}/${kind}/a`, `${addressOf("kv-odd")}/${kind}/a/1`, "", null);
  const anything = fc.jsonValue({ maxDepth: 2 });
  const attributes = fc.oneof(anything, fc.record({ enabled: fc.boolean(), exp: fc.oneof(fc.integer(), anything) }));
  const item = fc.record(
    { id: fc.oneof(id("secrets"), id("certificates")), kid: id("keys"), attributes, tags: anything, x5t: anything },
    { requiredKeys: [] },
  );
  const list = fc.record({ value: fc.array(fc.oneof(item, anything), { maxLength: 3 }) });
  const bundle = fc.record(
    {
      id: id("certificates"),
      key: fc.record(
        { kid: id("keys"), kty: anything, key_ops: anything, n: anything, crv: anything },
        { requiredKeys: [] },
      ),
      cer: fc.oneof(fc.base64String(), anything),
      attributes,
      policy: fc.oneof(
        anything,
        fc.record(
          {
            x509_props: fc.oneof(anything, fc.record({ sans: anything, ekus: anything })),
            lifetime_actions: fc.array(anything),
          },
          { requiredKeys: [] },
        ),
      ),
      lifetimeActions: fc.array(fc.oneof(anything, fc.record({ action: anything, trigger: anything }))),
    },
    { requiredKeys: [] },
  );
  const calls: ((client: VaultClient) => Promise<unknown>)[] = [
    (client) => collectItems(client.secrets()),
    (client) => collectItems(client.keys()),
    (client) => collectItems(client.certificates()),
    async (client) => (await client.key("a")).read(),
    async (client) => (await client.rotationPolicy("a"))?.read(),
    async (client) => (await client.certificate("a")).read(),
  ];
  const client = openVault();
  await fc.assert(
    fc.asyncProperty(fc.oneof(list, bundle, anything), fc.constantFrom(...calls), async (body, call) => {
      server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify(body)));
      await call(client).catch((error: unknown) => expect(error).toBeInstanceOf(CloudFailure));
    }),
    { numRuns: 400 },
  );
});

test("a retried request has the same body as the first", async () => {
  const { SecretClient } = await import("@azure/keyvault-secrets");
  const { identity, log, config } = createServices();
  const { origin } = new URL(addressOf("kv-odd"));
  const options = await clientOptions({
    origin,
    scope: `https://${config.cloud.keyVaultSuffix}/.default`,
    identity,
    route: () => ({
      target: { operation: "write a secret", resource: "kv-odd" },
      answer: z.object({ id: z.string() }),
    }),
    resource: "kv-odd",
    log,
    randomness: systemRandomness(),
    limits: { ...CALL_LIMITS, ...SHORT_WAITS },
  });
  const bodies: string[] = [];
  server.setResponse((request, response, count) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      bodies.push(text);
      if (count === 1) response.writeHead(429, { "retry-after": "0" }).end();
      else response.writeHead(200, JSON_TYPE).end(JSON.stringify({ id: `${origin}/secrets/a/1` }));
    });
  });
  await new SecretClient(origin, await identity.credential(), options).setSecret("a", "a value");
  expect(bodies).toEqual(['{"value":"a value","attributes":{}}', '{"value":"a value","attributes":{}}']);
});

test("the resource manager's token is sent to the resource manager only", async () => {
  const manager = createResourceManager(createServices());
  server.setResponse((_, response) =>
    response
      .writeHead(200, JSON_TYPE)
      .end(JSON.stringify({ value: [], nextLink: `https://evil.localhost:${server.port}/subscriptions?x=1` })),
  );
  const failure = await expectFailure(manager.subscriptions());
  expect(failure.code).toBe("foreignHost");
  expect(server.requests.map(({ host, authorization }) => [host, authorization])).toEqual([
    [`management.localhost:${server.port}`, `Bearer token for https://management.localhost:${server.port}/.default`],
  ]);
});

test("a subscription without the Key Vault provider has no vaults", async () => {
  server.setResponse((_, response) =>
    response.writeHead(409, JSON_TYPE).end(JSON.stringify({ error: { code: "MissingSubscriptionRegistration" } })),
  );
  expect(
    await collectVaults(createResourceManager(createServices()).vaults("5f0c3f5e-0000-4000-8000-000000000001")),
  ).toEqual([]);
});

test.each([
  ["plain http", "http://kv-a.vault.localhost/"],
  ["another domain", "https://kv-a.evil.localhost/"],
  ["the domain itself", "https://vault.localhost/"],
  ["a domain that only has the same suffix", "https://kv-a.notvault.localhost/"],
  ["credentials", "https://x@kv-a.vault.localhost/"],
  ["no address", "kv-a"],
])("a vault at %s is not opened", async (_, vaultUri) => {
  const open = async () => createKeyVaults(createServices()).open({ name: "kv-a", vaultUri });
  expect((await expectFailure(open())).code).toBe("foreignHost");
});
