import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

/** The `host:port` of each tunnel that was requested of the proxy. */
const tunnels: string[] = [];
/** Number of requests for a tunnel to `host` that fail, with an answer or a closed connection. */
let refusals: { host: string; times: number; answer?: string | undefined } = { host: "", times: 0 };
const proxy = createServer().on("connect", ({ url }, socket, head) => {
  tunnels.push(url!);
  if (url!.startsWith(`${refusals.host}:`) && refusals.times-- > 0) {
    socket.end(refusals.answer);
    return;
  }
  const target = connect(Number(url!.split(":")[1]), "127.0.0.1", () => {
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    target.write(head);
    target.pipe(socket).pipe(target);
  });
  for (const each of [socket, target]) each.on("error", () => socket.destroy());
});
let server: OddServer;

beforeAll(async () => {
  server = await startOddServer();
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
  refusals = { host: "", times: 0 };
  server.answer((_, response) =>
    response.writeHead(200, { "content-type": "application/json" }).end('{"value":[{"id":"https://kv/secrets/a"}]}'),
  );
});

let vaults = 0;
/** Returns the name of a vault that no test has a connection to. A retried test also needs a new vault. */
const newVault = (name: string) => `kv-${name}-${++vaults}`;
const hostOf = (vault: string) => `${vault}.vault.localhost`;
/** Returns the tunnels to one vault. Other modules of this process also send requests to the proxy. */
const tunnelsTo = (vault: string) => tunnels.filter((target) => target === `${hostOf(vault)}:${server.port}`);

const open = (vault: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT });
  return vaults.open({ name: vault, vaultUri: `https://${hostOf(vault)}:${server.port}` });
};
const secretsOf = async (vault: string) => await all(open(vault).secrets());

test("a vault is read through the proxy of the environment, over a tunnel that is used again", async () => {
  const name = newVault("behind");
  const vault = open(name);
  expect(await all(vault.secrets())).toMatchObject([{ name: "a" }]);
  expect(await all(vault.secrets())).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo(name)).toHaveLength(1);
  expect(server.requests).toHaveLength(2);
});

test("the proxy is not used for a host that NO_PROXY names", async () => {
  expect(await secretsOf("kv-direct")).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo("kv-direct")).toEqual([]);
});

test.each([
  ["hangs up", undefined],
  ["answers that it can't reach the host", "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"],
])("a request through a proxy that %s is retried as often as any other", async (_, answer) => {
  const refused = newVault("refused");
  refusals = { host: hostOf(refused), times: 2, answer };
  expect(await secretsOf(refused)).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo(refused)).toHaveLength(3);

  const never = newVault("never");
  refusals = { host: hostOf(never), times: 50, answer };
  expect(await failureOf(secretsOf(never))).toMatchObject({ code: "unreachable" });
  await delay(200);
  expect(tunnelsTo(never)).toHaveLength(3);
});
