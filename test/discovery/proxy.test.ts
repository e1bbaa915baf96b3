// A scan through the HTTP proxy that HTTPS_PROXY names.
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Service } from "../support/service.ts";

/** Addresses (host and port) to which clients opened a tunnel through the proxy. */
const tunnels: string[] = [];
const proxy = createServer().on("connect", ({ url }, socket, head) => {
  tunnels.push(url!);
  const target = connect(Number(url!.split(":")[1]), "127.0.0.1", () => {
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    target.write(head);
    target.pipe(socket).pipe(target);
  });
  for (const each of [socket, target]) each.on("error", () => socket.destroy());
});
let service: Service;

beforeAll(async () => {
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  service = await Service.start({
    company: {
      subscriptions: [
        { name: "One", vaults: ["kv-behind", "kv-direct"].map((name) => ({ name, generate: { keys: 40 } })) },
      ],
    },
    env: {
      HTTPS_PROXY: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
      NO_PROXY: "127.0.0.1, kv-direct.vault.localhost",
    },
  });
});
afterAll(async () => {
  await service?.stop();
  proxy.closeAllConnections();
  proxy.close();
});

test("a scan connects through the proxy, except to hosts in NO_PROXY", async () => {
  const { status, progress } = await service.scan({ mode: "full" });
  expect({ status, progress }).toMatchObject({ status: "completed", progress: { assetsAdded: 80 } });
  // Tunnels are reused for many of the requests.
  const tunnelsTo = (host: string) => tunnels.filter((address) => address.startsWith(`${host}.`));
  expect(tunnelsTo("kv-behind").length).toBeGreaterThan(0);
  expect(tunnelsTo("kv-behind").length).toBeLessThanOrEqual(8);
  expect(tunnelsTo("management").length).toBeGreaterThan(0);
  expect(tunnelsTo("kv-direct")).toEqual([]);
});
