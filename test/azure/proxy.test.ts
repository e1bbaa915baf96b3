import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createKeyVaults } from "../../shared/azure/key-vault.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

/** What the proxy was asked to connect to. */
const tunnels: string[] = [];
/** Instead of a connection, for the next so many that are asked for; none: it hangs up. */
let refusals: { times: number; answer?: string } = { times: 0 };
const proxy = createServer().on("connect", ({ url }, socket, head) => {
  tunnels.push(url!);
  if (refusals.times-- > 0) {
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
  refusals = { times: 0 };
  server.answer((_, response) =>
    response.writeHead(200, { "content-type": "application/json" }).end('{"value":[{"id":"https://kv/secrets/a"}]}'),
  );
});

const secretsOf = async (name: string) => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT });
  return await all(vaults.open({ name, vaultUri: `https://${name}.vault.localhost:${server.port}` }).secrets());
};

test("where the environment names a proxy, vaults are read through it, over connections that are kept", async () => {
  expect(await secretsOf("kv-behind")).toMatchObject([{ name: "a" }]);
  expect(await secretsOf("kv-behind")).toMatchObject([{ name: "a" }]);
  expect(tunnels).toEqual([`kv-behind.vault.localhost:${server.port}`]);
  expect(server.requests).toHaveLength(2);
});

test("hosts that NO_PROXY names are asked directly", async () => {
  expect(await secretsOf("kv-direct")).toMatchObject([{ name: "a" }]);
  expect(tunnels).toEqual([]);
});

test.each([
  ["hangs up", "cut", undefined],
  ["answers that it can't reach the host", "503", "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"],
])("a proxy that %s is asked again, as often as any host", async (_, name, answer) => {
  refusals = { times: 2, ...(answer !== undefined && { answer }) };
  expect(await secretsOf(`kv-refused-${name}`)).toMatchObject([{ name: "a" }]);
  expect(tunnels).toHaveLength(3);
  refusals = { times: 50, ...(answer !== undefined && { answer }) };
  expect(await failureOf(secretsOf(`kv-never-${name}`))).toMatchObject({ code: "unreachable" });
  await delay(200);
  expect(tunnels).toHaveLength(6);
});
