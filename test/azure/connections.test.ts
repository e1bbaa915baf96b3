import type { Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { collectItems, fakeIdentity, recordingLog, testConfig } from "./services.ts";

/** Tests of how many connections the Key Vault clients open, share and close. */

let server: FakeServer;
let otherServer: FakeServer;

beforeAll(async () => {
  [server, otherServer] = await Promise.all([startFakeServer(), startFakeServer()]);
});
afterAll(() => Promise.all([server, otherServer].map((each) => each?.stop())));

test("calls to one vault share a connection, which closing the vault closes", async () => {
  const sockets: Socket[] = [];
  server.setResponse((request, response) => {
    if (!sockets.includes(request.socket)) sockets.push(request.socket);
    response.writeHead(200, { "content-type": "application/json" }).end('{"value":[]}');
  });
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog() });
  for (let index = 0; index < 100; index++) {
    const vault = vaults.open({ name: `kv-${index}`, vaultUri: `https://kv-${index}.vault.localhost:${server.port}` });
    await collectItems(vault.secrets());
    await collectItems(vault.keys());
    await vault.close();
  }
  expect(server.requests).toHaveLength(200);
  expect(sockets).toHaveLength(100);
  await expect.poll(() => sockets.filter((socket) => !socket.destroyed).length).toBe(0);
});

test("closing an unused vault opens no connection", async () => {
  await openVault("kv-unused").close();
});

/**
 * Lets the server respond after 5 ms: to a list request with one of `pages` pages, and to a key request with a key. Returns the
 * sockets and headers of the requests, which are updated with each request.
 */
function respondWithLists(pages: number) {
  const observed = { sockets: new Set<Socket>(), agents: new Set<unknown>(), encodings: new Set<unknown>() };
  server.setResponse((request, response) => {
    observed.sockets.add(request.socket);
    observed.agents.add(request.headers["user-agent"]);
    observed.encodings.add(request.headers["accept-encoding"]);
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
  return observed;
}

const openVault = (name: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog() });
  return vaults.open({ name, vaultUri: `https://${name}.vault.localhost:${server.port}` });
};

test("a small vault is read over one connection despite parallel calls", async () => {
  const observed = respondWithLists(1);
  const vault = openVault("kv-small");
  await Promise.all([collectItems(vault.secrets()), collectItems(vault.keys()), collectItems(vault.certificates())]);
  await Promise.all(["a", "b", "c", "d"].map((name) => vault.key(name)));
  expect(server.requests).toHaveLength(7);
  expect(observed.sockets.size).toBe(1);
});

test("a large vault is read over at most eight connections", async () => {
  const observed = respondWithLists(4);
  const vault = openVault("kv-large");
  await Promise.all([collectItems(vault.secrets()), collectItems(vault.keys()), collectItems(vault.certificates())]);
  expect(observed.sockets.size).toBeGreaterThan(1);
  await Promise.all(Array.from({ length: 40 }, (_, index) => vault.key(`key-${index}`)));
  // 3 lists of 4 pages, and 40 keys.
  expect(server.requests).toHaveLength(52);
  expect(observed.sockets.size).toBe(8);
  expect(
    [...observed.agents].map((agent) => /^credential-lifecycle azsdk-js-keyvault-\w+/.exec(String(agent))?.[0]),
  ).toEqual([
    "credential-lifecycle azsdk-js-keyvault-secrets",
    "credential-lifecycle azsdk-js-keyvault-keys",
    "credential-lifecycle azsdk-js-keyvault-certificates",
  ]);
  expect([...observed.encodings]).toEqual(["identity"]);
});

test("servers with the same host name and different ports do not share connections", async () => {
  for (const each of [server, otherServer])
    each.setResponse((_, response) =>
      response.writeHead(200, { "content-type": "application/json" }).end('{"value":[]}'),
    );
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog() });
  for (const { port } of [server, otherServer, server, otherServer])
    await collectItems(vaults.open({ name: "kv-one", vaultUri: `https://kv-one.vault.localhost:${port}` }).secrets());
  expect([server.requests.length, otherServer.requests.length]).toEqual([2, 2]);
});
