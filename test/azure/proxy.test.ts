import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

/** The `host:port` of each tunnel that the proxy was asked for. */
const tunnels: string[] = [];
/** Requests for a tunnel to `host` that fail: with an answer, or with a closed connection where there is none. */
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
/** A vault that no test has a connection to. A second try of a test would otherwise use the connections of its first. */
const newVault = (name: string) => `kv-${name}-${++vaults}`;
const hostOf = (vault: string) => `${vault}.vault.localhost`;
/** The tunnels to one vault: the proxy also gets requests that other modules of this process send. */
const tunnelsTo = (vault: string) => tunnels.filter((target) => target === `${hostOf(vault)}:${server.port}`);

const secretsOf = async (vault: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const { open } = createKeyVaults({ config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT });
  return await all(open({ name: vault, vaultUri: `https://${hostOf(vault)}:${server.port}` }).secrets());
};

test("where the environment names a proxy, vaults are read through it, over connections that are kept", async () => {
  const vault = newVault("behind");
  expect(await secretsOf(vault)).toMatchObject([{ name: "a" }]);
  expect(await secretsOf(vault)).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo(vault)).toHaveLength(1);
  expect(server.requests).toHaveLength(2);
});

test("hosts that NO_PROXY names are asked directly", async () => {
  expect(await secretsOf("kv-direct")).toMatchObject([{ name: "a" }]);
  expect(tunnelsTo("kv-direct")).toEqual([]);
});

test.each([
  ["hangs up", undefined],
  ["answers that it can't reach the host", "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"],
])("a proxy that %s is asked again, as often as any host", async (_, answer) => {
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
