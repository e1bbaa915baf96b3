import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type RunningHost, runHost } from "./run-host.ts";

// Every test starts processes, which takes longer on a busy machine.

// The expected results were recorded from the real host and worker. The app uses the real library.

interface Echo {
  method: string;
  url: string;
  params: Record<string, string>;
  query: Record<string, string[]>;
  headers: Record<string, string>;
  hasBody: boolean;
  body: string;
}

let host: RunningHost;
beforeAll(async () => {
  const env = {
    "AzureWebJobs.switchedOff.Disabled": "true",
    AzureFunctionsJobHost__extensions__http__maxOutstandingRequests: "3",
    AzureFunctionsJobHost__extensions__http__maxConcurrentRequests: "2",
    FUNCTIONS_REQUEST_BODY_SIZE_LIMIT: "40000000",
  };
  host = await runHost({ env });
});
afterAll(() => host.stop("SIGKILL"));

const get = (path: string, init?: RequestInit) => fetch(host.url + path, init);
const echo = async (path: string, init?: RequestInit) => (await (await get(path, init)).json()) as Echo;

/**
 * Sends raw bytes, for requests that fetch can't send.
 * @returns everything that was received until the connection ended
 */
async function raw(...lines: string[]): Promise<string> {
  const socket = connect(Number(new URL(host.url).port), "127.0.0.1");
  socket.write(Buffer.from([...lines, "", ""].join("\r\n"), "utf8"));
  let answer = "";
  socket.setEncoding("utf8").on("data", (text) => {
    answer += text;
  });
  await once(socket, "end");
  return answer;
}
const rawEcho = async (...lines: string[]) => {
  const answer = await raw(lines[0]!, "Host: there.test", "Connection: close", ...lines.slice(1));
  return JSON.parse(answer.slice(answer.indexOf("{"))) as Echo;
};

describe("a request reaches the function", () => {
  it("with its route parameters, without missing optional parameters and empty catch-alls", async () => {
    expect((await echo("/ECHO/a%2Fb%20c")).params).toEqual({ id: "a%2Fb c" });
    expect((await echo("/echo")).params).toEqual({});
    expect((await echo("/files")).params).toEqual({});
    expect((await echo("/files/a/b")).params).toEqual({ rest: "a/b" });
  });

  it("with repeated query parameters joined by a comma, and an unchanged URL", async () => {
    const { query, url } = await echo("/echo?a=1&A=2&b=x+y%26&c");
    expect(query).toEqual({ a: ["1,2"], b: ["x y&"], c: [""] });
    expect(new URL(url).search).toBe("?a=1&A=2&b=x+y%26&c");
  });

  it("with resolved dot segments in its path", async () => {
    const { url, params } = await rawEcho("GET /files/x/../y%20z HTTP/1.1");
    expect(url).toBe("http://there.test/files/y%20z");
    expect(params).toEqual({ rest: "y z" });
  });

  it("with lower-case header names and repeated headers joined by a comma", async () => {
    const { headers } = await rawEcho("GET /echo HTTP/1.1", "X-Many: 1", "x-many: 2");
    expect(headers["x-many"]).toBe("1,2");
  });

  it("with the caller's address and port appended to X-Forwarded-For", async () => {
    const { headers } = await echo("/echo");
    expect(headers["x-forwarded-for"]).toMatch(/^127\.0\.0\.1:\d+$/);
    const forged = await echo("/echo", { headers: { "x-forwarded-for": "10.0.0.1" } });
    expect(forged.headers["x-forwarded-for"]).toMatch(/^10\.0\.0\.1, 127\.0\.0\.1:\d+$/);
  });

  it("with an unchanged body for POST and DELETE", async () => {
    const bytes = Buffer.from([0, 255, 128, 10]);
    for (const method of ["POST", "DELETE"]) {
      expect((await echo("/echo", { method, body: bytes })).body).toBe(bytes.toString("base64"));
    }
  });

  it("without a body when it is empty, chunked, or a GET", async () => {
    expect((await echo("/echo", { method: "POST" })).hasBody).toBe(false);
    const chunked = await rawEcho("POST /echo HTTP/1.1", "Transfer-Encoding: chunked", "", "4", "text", "0");
    expect(chunked.hasBody).toBe(false);
    const ofGet = await rawEcho("GET /echo HTTP/1.1", "Content-Length: 4", "", "text");
    expect(ofGet.hasBody).toBe(false);
  });

  it("with readable JSON that starts with a byte order mark", async () => {
    const answer = await get("/readJson", { method: "POST", body: '\uFEFF{"a":1}' });
    expect(await answer.json()).toEqual({ a: 1 });
  });

  it("with UTF-8 headers, but characters beyond Latin-1 result in a 500", async () => {
    expect((await rawEcho("GET /echo HTTP/1.1", "x-name: J\u00fcrgen")).headers["x-name"]).toBe("J\u00fcrgen");
    const answer = await raw("GET /echo HTTP/1.1", "Host: x", "Connection: close", "x-name: \u0141ukasz");
    expect(answer).toMatch(/^HTTP\/1.1 500 /);
  });
});

describe("a request is rejected", () => {
  it.each([
    ["no such path", "GET", "/nowhere", 404],
    ["wrong method, which is no 405", "PUT", "/echo/1", 404],
    ["HEAD unless listed", "HEAD", "/echo/1", 404],
    ["OPTIONS unless listed", "OPTIONS", "/echo/1", 404],
    ["a disabled function", "GET", "/switchedOff", 404],
    ["a function that wants a key", "GET", "/guarded", 401],
    ["a route that begins as a built in one", "GET", "/admin/mine", 404],
    ["a NUL in the path", "GET", "/echo/%00", 400],
  ])("%s", async (_, method, path, status) => {
    const answer = await get(path, { method });
    expect(answer.status).toBe(status);
    expect(await answer.text()).toBe("");
  });

  it("when its body exceeds the limit, before the body is read", async () => {
    const answer = await raw("POST /echo HTTP/1.1", "Host: x", "Content-Length: 40000001");
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
  });
});

describe("the response of a function", () => {
  it.each(["throws", "text", "informational", "brokenStream"])("is an empty 500 for %s", async (name) => {
    const answer = await get(`/${name}`);
    expect(answer.status).toBe(500);
    expect(await answer.text()).toBe("");
  });

  it("is an empty 500 when it reads invalid JSON", async () => {
    expect((await get("/readJson", { method: "POST", body: "{" })).status).toBe(500);
  });

  it.each([
    ["nothing", 204],
    ["noContent", 204],
    ["notModified", 304],
  ])("has no body for %s", async (name, status) => {
    const answer = await get(`/${name}`);
    expect(answer.status).toBe(status);
    expect(await answer.text()).toBe("");
  });

  it("is text/plain when it is text without a content type", async () => {
    const answer = await get("/plain");
    expect(answer.headers.get("content-type")).toBe("text/plain;charset=UTF-8");
    expect(await answer.text()).toBe("text");
  });

  it("is buffered before it is sent, also a stream", async () => {
    const answer = await get("/stream");
    expect(answer.headers.get("content-length")).toBe("12");
    expect(await answer.text()).toBe("first second");
  });

  it("sets every cookie of the cookies array", async () => {
    expect((await get("/cookies")).headers.getSetCookie()).toEqual([
      "one=a%20b%3Bc; max-age=60; path=/; secure; samesite=lax; httponly",
      "two=2; path=/there; samesite=none",
      // `expires: new Date(0)` is lost, so an app must use maxAge.
      "three=; path=/",
    ]);
  });

  it("sets only the last cookie that is given as a header", async () => {
    expect((await get("/setCookieHeaders")).headers.getSetCookie()).toEqual(["two=2"]);
  });
});

it("enforces the limits of host.json: excess requests get a 429, and requests over the concurrency limit wait", async () => {
  const before = host.lines.length;
  const gate = path.join(await mkdtemp(path.join(tmpdir(), "gate-")), "open");
  let refused = 0;
  const started = Array.from({ length: 6 }, async () => {
    const { status } = await get(`/slow?until=${encodeURIComponent(gate)}`);
    if (status === 429) refused += 1;
    return status;
  });
  // All six have arrived before the first may finish.
  await expect.poll(() => refused).toBe(3);
  await writeFile(gate, "");
  expect((await Promise.all(started)).sort()).toEqual([200, 200, 200, 429, 429, 429]);
  const executed = () => host.lines.slice(before).filter((line) => line.includes("Executed 'Functions.slow'")).length;
  await host.line(() => executed() === 3);
  let running = 0;
  let most = 0;
  for (const line of host.lines.slice(before)) {
    if (line.includes("Executing 'Functions.slow'")) running += 1;
    if (line.includes("Executed 'Functions.slow'")) running -= 1;
    most = Math.max(most, running);
  }
  expect(most).toBe(2);
});

describe("the host's own routes", () => {
  it("include a home page, unless a function has its route", async () => {
    const answer = await get("/");
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain("up and running");
  });

  it("do not include the diagnostic routes by default", async () => {
    expect((await get("/__host/modules")).status).toBe(404);
  });
});

it("returns 504 when a function exceeds the response timeout", async () => {
  const limited = await runHost({ args: ["--answer-limit", "1"] });
  expect((await fetch(`${limited.url}/slow?ms=60000`)).status).toBe(504);
  await limited.stop("SIGKILL");
});
