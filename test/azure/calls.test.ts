import type { ServerResponse } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { CALL_LIMITS, type CallLimits, clientOptions } from "../../shared/platform/azure/calls.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createKeyVaults, type VaultClient } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, allVaults, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

let server: OddServer;

beforeAll(async () => {
  server = await startOddServer();
});
afterAll(() => server.stop());

const JSON_TYPE = { "content-type": "application/json; charset=utf-8" };

function services(limits: Partial<CallLimits> = {}) {
  const config = testConfig({
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  return { config, identity: plainIdentity, log: recordingLog(), limits: { ...IMPATIENT, ...limits } };
}

const addressOf = (name: string) => `https://${name}.vault.localhost:${server.port}`;

function vault(limits?: Partial<CallLimits>): VaultClient {
  return createKeyVaults(services(limits)).open({ name: "kv-odd", vaultUri: `${addressOf("kv-odd")}/` });
}

const secretPage = (names: string[], nextLink?: string) =>
  JSON.stringify({ value: names.map((name) => ({ id: `${addressOf("kv-odd")}/secrets/${name}` })), nextLink });

test("the first request has a token with the scope of the vault domain", async () => {
  server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"])));
  expect((await all(vault().secrets())).map(({ name }) => name)).toEqual(["a"]);
  expect(server.requests.map(({ authorization }) => authorization)).toEqual([
    "Bearer token for https://vault.localhost/.default",
  ]);
});

test.each([
  ["another host", () => `https://kv-other.vault.localhost:${server.port}/secrets?page=2`],
  ["another port", () => `https://kv-odd.vault.localhost:${server.port === 443 ? 444 : 443}/secrets?page=2`],
  ["plain http", () => `http://kv-odd.vault.localhost:${server.port}/secrets?page=2`],
  ["credentials before the host", () => `https://x:y@kv-odd.vault.localhost:${server.port}/secrets?page=2`],
  ["a host that only begins alike", () => `https://kv-odd.vault.localhost.evil.localhost:${server.port}/secrets`],
])("a next page at %s fails, and no request is sent there", async (_, link) => {
  server.answer((_request, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"], link())));
  const failure = await failureOf(all(vault().secrets()));
  expect(failure.code).toBe("foreignHost");
  expect(server.requests).toHaveLength(1);
});

test("a next page that is not a page of a list fails", async () => {
  const link = `${addressOf("kv-odd")}/secrets/a/backup`;
  server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"], link)));
  expect((await failureOf(all(vault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("pages that form a circle end with a failure", async () => {
  const [first, second] = [`${addressOf("kv-odd")}/secrets?p=1`, `${addressOf("kv-odd")}/secrets?p=2`];
  server.answer((request, response) =>
    response.writeHead(200, JSON_TYPE).end(secretPage(["a"], request.url?.includes("p=1") ? second : first)),
  );
  expect((await failureOf(all(vault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(3);
});

test("a redirect is not followed", async () => {
  server.answer((_, response) => response.writeHead(307, { location: `${addressOf("kv-thief")}/secrets` }).end());
  expect((await failureOf(all(vault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("a challenge causes no other token and no retry", async () => {
  server.answer((_, response) =>
    response
      .writeHead(401, {
        ...JSON_TYPE,
        "www-authenticate": `Bearer authorization="https://evil.localhost/x", resource="https://vault.localhost"`,
      })
      .end(JSON.stringify({ error: { code: "Unauthorized", message: "no" } })),
  );
  const failure = await failureOf(all(vault().secrets()));
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
] as const)("%s has a code and a remedy of its own, and is not retried", async (_, status, error, code, remedy) => {
  server.answer((_request, response) =>
    response.writeHead(status, JSON_TYPE).end(JSON.stringify({ error: { ...error, message: "do not repeat me" } })),
  );
  const failure = await failureOf(all(vault().keys()));
  expect(failure.code).toBe(code);
  expect(failure.remedy).toContain(remedy);
  expect(failure.message).toContain("list keys (key vault kv-odd)");
  expect(server.requests).toHaveLength(1);
});

test("a failure contains no text of the answer and no token", async () => {
  server.answer((_, response) =>
    response.writeHead(403, JSON_TYPE).end(JSON.stringify({ error: { code: "planted secret!", message: "planted" } })),
  );
  const failure = await failureOf(vault().key("a"));
  const everything = `${failure.stack} ${JSON.stringify(failure)} ${JSON.stringify({ ...failure })}`;
  expect(everything).not.toMatch(/planted|token for/);
  expect(failure.cause).toBeUndefined();
});

test("a call waits as long as Retry-After says, and then succeeds", async () => {
  server.answer((_, response, count) =>
    count < 3
      ? response.writeHead(429, { "retry-after": "0" }).end()
      : response.writeHead(200, JSON_TYPE).end(secretPage(["a"])),
  );
  expect(await all(vault().secrets())).toHaveLength(1);
  expect(server.requests).toHaveLength(3);
});

test("429 without Retry-After is sent five times", async () => {
  server.answer((_, response) => response.writeHead(429).end());
  expect((await failureOf(all(vault().secrets()))).code).toBe("throttled");
  expect(server.requests).toHaveLength(5);
});

test.each([
  ["seconds", () => "600"],
  ["a date", () => new Date(Date.now() + 600_000).toUTCString()],
])("a wait that is longer than the limit fails at once with the seconds, given as %s", async (_, retryAfter) => {
  server.answer((_request, response) => response.writeHead(503, { "retry-after": retryAfter() }).end());
  const failure = await failureOf(all(vault().secrets()));
  expect(failure.code).toBe("throttled");
  expect(failure.retryAfterSeconds).toBeGreaterThan(590);
  expect(failure.retryAfterSeconds).toBeLessThanOrEqual(601);
  expect(server.requests).toHaveLength(1);
});

test.each([{}, { "retry-after": "0" }])(
  "short waits fail once their sum is longer than the limit: %j",
  async (headers) => {
    server.answer((_, response) => response.writeHead(429, headers).end());
    await failureOf(all(vault({ firstWaitMs: 10, totalWaitMs: 14 }).secrets()));
    expect(server.requests.length).toBeLessThan(5);
  },
);

test("retries are logged without the token", async () => {
  const parts = services();
  server.answer((_, response) => response.writeHead(500).end());
  await failureOf(
    all(
      createKeyVaults(parts)
        .open({ name: "kv-odd", vaultUri: addressOf("kv-odd") })
        .secrets(),
    ),
  );
  expect(parts.log.lines).toHaveLength(2);
  expect(parts.log.lines.join()).toContain("unreachable");
  expect(parts.log.lines.join()).not.toMatch(/token for|authorization/i);
});

test.each([500, 502, 503, 504, 408])("%i is sent three times, then unreachable", async (status) => {
  server.answer((_, response) => response.writeHead(status).end("<html>"));
  expect((await failureOf(all(vault().certificates()))).code).toBe("unreachable");
  expect(server.requests).toHaveLength(3);
});

test("a request whose connection is reset is sent three times, then unreachable", async () => {
  server.answer((request) => request.socket.destroy());
  expect((await failureOf(all(vault().secrets()))).code).toBe("unreachable");
  expect(server.requests).toHaveLength(3);
});

test("a name that does not resolve is unreachable", async () => {
  // Some resolvers are slow for unknown names.
  const parts = services({ requestTimeoutMs: 2_000 });
  const config = { ...parts.config, cloud: { ...parts.config.cloud, keyVaultSuffix: "vault.invalid" } };
  const gone = createKeyVaults({ ...parts, config }).open({
    name: "kv-gone",
    vaultUri: "https://kv-gone.vault.invalid/",
  });
  const failure = await failureOf(all(gone.secrets()));
  expect(failure.code).toBe("unreachable");
  expect(failure.remedy).toContain("DNS");
});

test("a closed port is unreachable", async () => {
  const gone = createKeyVaults(services()).open({ name: "kv-gone", vaultUri: "https://kv-gone.vault.localhost:1/" });
  const failure = await failureOf(all(gone.secrets()));
  expect([failure.code, failure.cloudCode]).toEqual(["unreachable", "ECONNREFUSED"]);
});

test("a host with the certificate of another host is unreachable", async () => {
  const config = testConfig({ AZURE_RESOURCE_MANAGER_ENDPOINT: `https://unnamed.localhost:${server.port}` });
  const failure = await failureOf(createResourceManager({ ...services(), config }).subscriptions());
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
  server.answer((_request, response) => response.writeHead(200, JSON_TYPE).end(secretPage([])));
  await all(vault().secrets());
  server.answer((_request, response) => stopResponding(response));
  const failure = await failureOf(all(vault({ requestTimeoutMs: 500 }).secrets()));
  expect(failure.code).toBe("unreachable");
  expect(failure.message).toContain("within 0.5 s");
  expect(server.requests).toHaveLength(3);
});

test("an abort ends a call that hangs", async () => {
  const controller = new AbortController();
  server.answer(() => controller.abort());
  expect((await failureOf(all(vault().secrets(controller.signal)))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(1);
});

test("an abort ends the wait before a retry", async () => {
  const controller = new AbortController();
  server.answer((_, response) => {
    response.writeHead(429, { "retry-after": "30" }).end();
    setTimeout(() => controller.abort(), 50);
  });
  expect((await failureOf(all(vault().secrets(controller.signal)))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(1);
});

test("nothing is sent after an abort", async () => {
  server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(secretPage(["a"])));
  expect((await failureOf(vault().key("a", AbortSignal.abort()))).code).toBe("timedOut");
  expect(server.requests).toHaveLength(0);
});

test.each([
  ["an HTML page", { "content-type": "text/html" }, "<html>Sign in</html>"],
  ["JSON cut short", JSON_TYPE, '{"value":[{"id":"https://'],
  ["nothing", JSON_TYPE, ""],
  ["JSON that is no object", JSON_TYPE, "null"],
  ["no list", JSON_TYPE, "{}"],
  ["a list of nothing", JSON_TYPE, '{"value":[null]}'],
  ["an id of another kind", JSON_TYPE, '{"value":[{"id":"https://kv-odd.vault.localhost/keys/a"}]}'],
  ["an expiry that is no number", JSON_TYPE, '{"value":[{"id":"https://v/secrets/a","attributes":{"exp":"soon"}}]}'],
  ["a link that is no text", JSON_TYPE, '{"value":[],"nextLink":7}'],
] as const)("%s instead of a list is a bad response and is not retried", async (_, headers, body) => {
  server.answer((_request, response) => response.writeHead(200, headers).end(body));
  expect((await failureOf(all(vault().secrets()))).code).toBe("badResponse");
  expect(server.requests).toHaveLength(1);
});

test("for any JSON of a vault, a call succeeds or throws a CloudFailure", async () => {
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
    (client) => all(client.secrets()),
    (client) => all(client.keys()),
    (client) => all(client.certificates()),
    async (client) => (await client.key("a")).read(),
    async (client) => (await client.rotationPolicy("a"))?.read(),
    async (client) => (await client.certificate("a")).read(),
  ];
  const client = vault();
  await fc.assert(
    fc.asyncProperty(fc.oneof(list, bundle, anything), fc.constantFrom(...calls), async (body, call) => {
      server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify(body)));
      await call(client).catch((error: unknown) => expect(error).toBeInstanceOf(CloudFailure));
    }),
    { numRuns: 400 },
  );
});

test("a client's first request has its body, also when retried", async () => {
  const { SecretClient } = await import("@azure/keyvault-secrets");
  const { identity, log, config } = services();
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
    limits: { ...CALL_LIMITS, ...IMPATIENT },
  });
  const bodies: string[] = [];
  server.answer((request, response, count) => {
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
  const manager = createResourceManager(services());
  server.answer((_, response) =>
    response
      .writeHead(200, JSON_TYPE)
      .end(JSON.stringify({ value: [], nextLink: `https://evil.localhost:${server.port}/subscriptions?x=1` })),
  );
  const failure = await failureOf(manager.subscriptions());
  expect(failure.code).toBe("foreignHost");
  expect(server.requests.map(({ host, authorization }) => [host, authorization])).toEqual([
    [`management.localhost:${server.port}`, `Bearer token for https://management.localhost:${server.port}/.default`],
  ]);
});

test("a subscription without the Key Vault provider has no vaults", async () => {
  server.answer((_, response) =>
    response.writeHead(409, JSON_TYPE).end(JSON.stringify({ error: { code: "MissingSubscriptionRegistration" } })),
  );
  expect(await allVaults(createResourceManager(services()).vaults("5f0c3f5e-0000-4000-8000-000000000001"))).toEqual([]);
});

test.each([
  ["plain http", "http://kv-a.vault.localhost/"],
  ["another domain", "https://kv-a.evil.localhost/"],
  ["the domain itself", "https://vault.localhost/"],
  ["a domain that only ends alike", "https://kv-a.notvault.localhost/"],
  ["credentials", "https://x@kv-a.vault.localhost/"],
  ["no address", "kv-a"],
])("a vault at %s is not opened", async (_, vaultUri) => {
  const open = async () => createKeyVaults(services()).open({ name: "kv-a", vaultUri });
  expect((await failureOf(open())).code).toBe("foreignHost");
});
