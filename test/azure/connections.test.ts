import type { Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, plainIdentity, recordingLog, testConfig } from "./services.ts";

let server: OddServer;
let other: OddServer;

beforeAll(async () => {
  [server, other] = await Promise.all([startOddServer(), startOddServer()]);
});
afterAll(() => Promise.all([server, other].map((each) => each?.stop())));

test("the calls of one vault share a connection, and no connection is open once the vaults are closed", async () => {
  const sockets: Socket[] = [];
  server.answer((request, response) => {
    if (!sockets.includes(request.socket)) sockets.push(request.socket);
    response.writeHead(200, { "content-type": "application/json" }).end('{"value":[]}');
  });
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog() });
  for (let index = 0; index < 100; index++) {
    const vault = vaults.open({ name: `kv-${index}`, vaultUri: `https://kv-${index}.vault.localhost:${server.port}` });
    await all(vault.secrets());
    await all(vault.keys());
    await vault.close();
  }
  expect(server.requests).toHaveLength(200);
  expect(sockets).toHaveLength(100);
  await expect.poll(() => sockets.filter((socket) => !socket.destroyed).length).toBe(0);
});

test("a vault that was never called is closed without a connection", async () => {
  await open("kv-unused").close();
});

/** Answers lists with a number of pages, and any key, after some milliseconds. Returns the sockets and headers of requests. */
function answerLists(pages: number) {
  const seen = { sockets: new Set<Socket>(), agents: new Set<unknown>(), encodings: new Set<unknown>() };
  server.answer((request, response) => {
    seen.sockets.add(request.socket);
    seen.agents.add(request.headers["user-agent"]);
    seen.encodings.add(request.headers["accept-encoding"]);
    const { host } = request.headers;
    const url = new URL(request.url!, `https://${host}`);
    const [, collection, name] = url.pathname.split("/");
    const page = Number(url.searchParams.get("page") ?? 1);
    const link = `${url.origin}${url.pathname}?api-version=7.5&page=${page + 1}`;
    const body = name
      ? { key: { kid: `${url.origin}/keys/${name}/1`, kty: "EC", crv: "P-256" }, attributes: {} }
      : { value: [], nextLink: page < pages ? link : null };
    if (!["secrets", "keys", "certificates"].includes(collection!)) response.writeHead(404).end();
    else setTimeout(() => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body)), 5);
  });
  return seen;
}

const open = (name: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog() });
  return vaults.open({ name, vaultUri: `https://${name}.vault.localhost:${server.port}` });
};

test("a small vault is read over one connection, although its lists and some keys are read at once", async () => {
  const seen = answerLists(1);
  const vault = open("kv-small");
  await Promise.all([all(vault.secrets()), all(vault.keys()), all(vault.certificates())]);
  await Promise.all(["a", "b", "c", "d"].map((name) => vault.key(name)));
  expect(server.requests).toHaveLength(7);
  expect(seen.sockets.size).toBe(1);
});

test("a large vault is read over eight connections at most, without further requests and without compression", async () => {
  const seen = answerLists(4);
  const vault = open("kv-large");
  await Promise.all([all(vault.secrets()), all(vault.keys()), all(vault.certificates())]);
  expect(seen.sockets.size).toBeGreaterThan(1);
  await Promise.all(Array.from({ length: 40 }, (_, at) => vault.key(`key-${at}`)));
  expect(server.requests).toHaveLength(52);
  expect(seen.sockets.size).toBe(8);
  expect(
    [...seen.agents].map((agent) => /^credential-lifecycle azsdk-js-keyvault-\w+/.exec(String(agent))?.[0]),
  ).toEqual([
    "credential-lifecycle azsdk-js-keyvault-secrets",
    "credential-lifecycle azsdk-js-keyvault-keys",
    "credential-lifecycle azsdk-js-keyvault-certificates",
  ]);
  expect([...seen.encodings]).toEqual(["identity"]);
});

test("two services with the same host name and different ports have connections of their own", async () => {
  for (const each of [server, other])
    each.answer((_, response) => response.writeHead(200, { "content-type": "application/json" }).end('{"value":[]}'));
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog() });
  for (const { port } of [server, other, server, other])
    await all(vaults.open({ name: "kv-one", vaultUri: `https://kv-one.vault.localhost:${port}` }).secrets());
  expect([server.requests.length, other.requests.length]).toEqual([2, 2]);
});
