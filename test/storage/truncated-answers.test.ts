import { type AddressInfo, createServer, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";

// A response of the storage that ends early or is not HTTP counts as lost: the client repeats the request.

const Thing = entity("Things", z.object({ name: z.string() }));

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

test.each([
  ["that ends within a chunk", "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"],
  ["that is not HTTP", "hello there\r\n\r\n"],
])("a write with a response %s is sent again", async (_, firstResponse) => {
  let requests = 0;
  const server = createServer((socket: Socket) => {
    socket.on("error", () => {});
    socket.on("data", () => {
      if (++requests === 1) socket.end(firstResponse);
      else socket.write('HTTP/1.1 204 No Content\r\nETag: W/"1"\r\n\r\n');
    });
    stops.push(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => server.close());
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/account`;
  const tables = createTables({
    connectionString: `DefaultEndpointsProtocol=http;AccountName=account;AccountKey=YWJj;TableEndpoint=${endpoint};`,
  });
  expect(await tables.put(Thing, "p", "r", { name: "n" })).toMatchObject({ etag: 'W/"1"' });
  expect(requests).toBe(2);
});
