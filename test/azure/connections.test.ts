import type { Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createKeyVaults } from "../../shared/azure/key-vault.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, plainIdentity, recordingLog, testConfig } from "./services.ts";

let server: OddServer;

beforeAll(async () => {
  server = await startOddServer();
});
afterAll(() => server.stop());

test("one vault's calls share a connection, and a hundred vaults leave less than fifty open", async () => {
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
  }
  expect(server.requests).toHaveLength(200);
  expect(sockets).toHaveLength(100);
  await expect.poll(() => sockets.filter((socket) => !socket.destroyed).length).toBeLessThan(50);
});
