import { request } from "node:http";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { accepts, acceptsGzip } from "../../shared/platform/http/compression.ts";
import { ADMIN, Service } from "../support/service.ts";

// Tests of gzip-compressed responses over HTTP: which responses are compressed, and for which callers.

let service: Service;
let token: string;
beforeAll(async () => {
  service = await Service.start();
  token = await service.signIn(ADMIN);
  await service.scan();
});
afterAll(() => service.stop());

/** Sends a request and returns the body as transferred. `fetch` would decompress it. */
function get(path: string, headers: Record<string, string> = {}, method = "GET") {
  return new Promise<{ status: number; headers: Record<string, unknown>; bytes: Buffer }>((resolve, reject) => {
    const options = { method, headers: { Authorization: `Bearer ${token}`, ...headers } };
    const outgoing = request(service.url + path, options, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk) => chunks.push(chunk));
      answer.on("end", () =>
        resolve({ status: answer.statusCode!, headers: answer.headers, bytes: Buffer.concat(chunks) }),
      );
    });
    outgoing.on("error", reject).end();
  });
}

const ASSETS = "/api/assets/discovery/assets";

describe("an answer", () => {
  test.each([ASSETS, `${ASSETS}?format=csv`, "/openapi.json", "/docs/files/swagger-ui.css"])(
    "of more than 1 KiB is compressed for callers that accept gzip: %s",
    async (path) => {
      const [plain, zipped] = [await get(path), await get(path, { "Accept-Encoding": "br, gzip;q=0.5" })];
      expect([plain.headers["content-encoding"], zipped.headers["content-encoding"]]).toEqual([undefined, "gzip"]);
      expect(zipped.headers.vary).toBe("Accept-Encoding");
      expect(zipped.bytes.length).toBeLessThan(plain.bytes.length / 2);
      expect(gunzipSync(zipped.bytes).equals(plain.bytes)).toBe(true);
      expect(zipped.headers["content-type"]).toBe(plain.headers["content-type"]);
      // The OpenAPI document names Vary only in the compressed answer.
      if (path !== "/openapi.json") expect(plain.headers.vary).toBe("Accept-Encoding");
    },
  );

  test("of at most 1 KiB is not compressed", async () => {
    const small = await get("/health", { "Accept-Encoding": "gzip" });
    expect([small.headers["content-encoding"], JSON.parse(small.bytes.toString()).status]).toEqual([
      undefined,
      "healthy",
    ]);
  });

  test("to HEAD has no body and no Content-Encoding", async () => {
    const head = await get(ASSETS, { "Accept-Encoding": "gzip" }, "HEAD");
    expect([head.status, head.headers["content-encoding"], head.bytes.length]).toEqual([200, undefined, 0]);
  });
});

test.each<[string, boolean]>([
  ["gzip", true],
  ["GZIP", true],
  ["x-gzip", true],
  ["br, gzip;q=0.1", true],
  ["*", true],
  ["*;q=0", false],
  ["gzip;q=0", false],
  ["gzip; q=0.000", false],
  ["gzip;q=0, *", false],
  // Only the parameter `q` is a weight.
  ["gzip;a=1;q=0", false],
  ["*;q=0, gzip", true],
  ["identity", false],
  ["br", false],
  ["gzipped", false],
  ["gzip;q=x", false],
  ["", false],
])("Accept-Encoding %j accepts gzip: %s", (value, expected) => {
  expect(acceptsGzip(new Headers({ "accept-encoding": value }))).toBe(expected);
});

test.each<[string, boolean]>([
  ["gzip, deflate, br, zstd", true],
  ["br;q=0, gzip", false],
  ["gzip", false],
  ["*", true],
])("Accept-Encoding %j accepts Brotli: %s", (value, expected) => {
  expect(accepts(new Headers({ "accept-encoding": value }), "br")).toBe(expected);
});

test("a request without Accept-Encoding does not accept gzip", () => {
  expect(acceptsGzip(new Headers())).toBe(false);
});

describe("a file of the documentation", () => {
  /** Matches the address of a file with its version, for example `/docs/files/swagger-ui.css?v=2vZx0b`. */
  const FILE_ADDRESS = /\/docs\/files\/([\w.-]+)\?v=([\w-]+)/g;

  test("is referenced with an address that can be cached forever", async () => {
    for (const path of ["/docs", "/redoc"]) {
      const page = (await get(path)).bytes.toString();
      const addresses = [...page.matchAll(FILE_ADDRESS)];
      expect(addresses.length).toBeGreaterThan(2);
      for (const [address] of addresses) {
        const file = await get(address);
        expect([address, file.status]).toEqual([address, 200]);
        expect(file.headers["cache-control"]).toBe("public, max-age=31536000, immutable");
      }
    }
  });

  test("without a version, or with another version, is revalidated by its ETag", async () => {
    const path = "/docs/files/swagger-ui-bundle.js";
    for (const address of [path, `${path}?v=older`]) {
      for (const encoding of ["gzip", "identity"]) {
        const accept = { "Accept-Encoding": encoding };
        const first = await get(address, accept);
        expect(first.headers["cache-control"]).toBe("public, no-cache");
        const etag = String(first.headers.etag);
        for (const matchingTags of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
          const revalidated = await get(address, { ...accept, "If-None-Match": matchingTags });
          expect([revalidated.status, revalidated.bytes.length, revalidated.headers.etag]).toEqual([304, 0, etag]);
        }
        const changed = await get(address, { ...accept, "If-None-Match": '"other"' });
        expect(changed.status).toBe(200);
      }
    }
  });

  test("with an unknown name, or the name of an object property, is not found", async () => {
    for (const name of ["hashes.json", "swagger-ui.css.gz", "constructor", "__proto__"]) {
      expect([name, (await get(`/docs/files/${name}`)).status]).toEqual([name, 404]);
    }
  });
});

test("requests for documentation files count against the caller's address", async () => {
  const host = await service.addHost({ RATE_LIMIT_PER_MINUTE: "3" });
  const statuses = [];
  for (let call = 0; call < 5; call++) {
    statuses.push((await fetch(`${host.url}/docs/files/swagger-start.js`)).status);
  }
  expect(statuses).toEqual([200, 200, 200, 429, 429]);
});
