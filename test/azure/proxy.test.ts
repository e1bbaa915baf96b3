import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { collectItems, expectFailure, fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "./services.ts";

/** Tests of Key Vault calls through the proxy that `HTTPS_PROXY` names. */

/** The `host:port` of each tunnel that a client requested from the proxy, oldest first. */
const tunnels: string[] = [];
/** The next `times` tunnel requests to `host` fail: with `answer`, or with a closed connection if it is undefined. */
let tunnelFailures: { host: string; times: number; answer?: string | undefined } = { host: "", times: 0 };
const proxy = createServer().on("connect", ({ url }, socket, head) => {
  tunnels.push(url!);
  if (url!.startsWith(`${tunnelFailures.host}:`) && tunnelFailures.times-- > 0) {
    socket.end(tunnelFailures.answer);
    return;
  }
  const target = connect(Number(url!.split(":")[1]), "127.0.0.1", () => {
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    target.write(head);
    target.pipe(socket).pipe(target);
  });
  for (const each of [socket, target]) each.on("error", () => socket.destroy());
});
let server: FakeServer;

beforeAll(async () => {
  server = await startFakeServer();
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  vi.stubEnv("HTTPS_PROXY", `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
  vi.stubEnv("NO_PROXY", "other.example, kv-direct.vault.localhost");
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await server?.stop();
  proxy.closeAllConnections();
  proxy.close();
});
beforeEach(() => {
  tunnels.length = 0;
  tunnelFailures = { host: "", times: 0 };
  server.setResponse((_, response) =>
    response.writeHead(200, { "content-type": "application/json" }).end('{"value":[{"id":"https://kv/secrets/a"}]}'),
  );
});

let vaultCount = 0;
/** Returns the name of a vault that no test has a connection to. A retried test also needs a new vault. */
const newVault = (name: string) => `kv-${name}-${++vaultCount}`;
const hostOf = (vault: string) => `${vault}.vault.localhost`;
/** Returns the tunnels to one vault. Other modules of this process also send requests to the proxy. */
const tunnelsTo = (vault: string) => tunnels.filter((target) => target === `${hostOf(vault)}:${server.port}`);

const openVault = (vault: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog(), limits: SHORT_WAITS });
  return vaults.open({ name: vault, vaultUri: `https://${hostOf(vault)}:${server.port}` });
};
const secretsOf = async (vault: string) => await collectItems(openVault(vault).secrets());

test("calls to a vault share one tunnel through the proxy", async () => {
  const name = newVault("behind");
  const vault = openVault(name);
  expect(await collectItems(vault.secrets())).toMatchObject([{ name: "a" }]);
  expect(await collectItems(vault.secrets())).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo(name)).toHaveLength(1);
  expect(server.requests).toHaveLength(2);
});

test("the proxy is not used for a host that NO_PROXY names", async () => {
  expect(await secretsOf("kv-direct")).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo("kv-direct")).toEqual([]);
});

test.each([
  ["hangs up", undefined],
  ["responds that it can't reach the host", "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"],
])("a request through a proxy that %s is sent three times", async (_, answer) => {
  const reachableLater = newVault("refused");
  tunnelFailures = { host: hostOf(reachableLater), times: 2, answer };
  expect(await secretsOf(reachableLater)).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo(reachableLater)).toHaveLength(3);

  const unreachable = newVault("never");
  tunnelFailures = { host: hostOf(unreachable), times: 50, answer };
  expect(await expectFailure(secretsOf(unreachable))).toMatchObject({ code: "unreachable" });
  await delay(200);
  expect(tunnelsTo(unreachable)).toHaveLength(3);
});
