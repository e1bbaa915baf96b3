import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type RunningHost, runHost } from "./run-host.ts";

/**
 * Tests the HTTP behavior of the local Functions host: each test sends a request to a host process that runs the app in
 * `fixture-app`. The expected results were recorded from the platform's host and worker.
 */

/** Response body of the fixture app's functions `echo` and `catchAll`: the request as the function received it. */
interface Echo {
  method: string;
  url: string;
  params: Record<string, string>;
  query: Record<string, string[]>;
  headers: Record<string, string>;
  hasBody: boolean;
  body: string;
}

/** The host runs at most this number of requests at once. */
const MAX_CONCURRENT = 2;
/** The host accepts at most this number of running and waiting requests. */
const MAX_OUTSTANDING = 3;
const MAX_BODY_BYTES = 40_000_000;

let host: RunningHost;
beforeAll(async () => {
  const env = {
    "AzureWebJobs.switchedOff.Disabled": "true",
    AzureFunctionsJobHost__extensions__http__maxOutstandingRequests: String(MAX_OUTSTANDING),
    AzureFunctionsJobHost__extensions__http__maxConcurrentRequests: String(MAX_CONCURRENT),
    FUNCTIONS_REQUEST_BODY_SIZE_LIMIT: String(MAX_BODY_BYTES),
  };
  host = await runHost({ env });
});
afterAll(() => host.stop("SIGKILL"));

const callHost = (path: string, init?: RequestInit) => fetch(host.url + path, init);
const callEcho = async (path: string, init?: RequestInit) => (await (await callHost(path, init)).json()) as Echo;

/**
 * Sends a request as raw text, because `fetch` can't send some requests: the given lines and an empty line.
 * @returns the whole response as text, until the host closes the connection
 */
async function sendRaw(...lines: string[]): Promise<string> {
  const socket = connect(Number(new URL(host.url).port), "127.0.0.1");
  socket.write(Buffer.from([...lines, "", ""].join("\r\n"), "utf8"));
  let answer = "";
  socket.setEncoding("utf8").on("data", (text) => {
    answer += text;
  });
  await once(socket, "end");
  return answer;
}
/** Sends a raw request to an echo function. */
const sendRawToEcho = async (...lines: string[]) => {
  const answer = await sendRaw(lines[0]!, "Host: there.test", "Connection: close", ...lines.slice(1));
  return JSON.parse(answer.slice(answer.indexOf("{"))) as Echo;
};

describe("a request reaches the function", () => {
  it("with its route parameters, but not the missing ones", async () => {
    // The platform decodes `%20`, but not `%2F`.
    expect((await callEcho("/ECHO/a%2Fb%20c")).params).toEqual({ id: "a%2Fb c" });
    expect((await callEcho("/echo")).params).toEqual({});
    expect((await callEcho("/files")).params).toEqual({});
    expect((await callEcho("/files/a/b")).params).toEqual({ rest: "a/b" });
  });

  it("with repeated query parameters joined by a comma", async () => {
    const { query, url } = await callEcho("/echo?a=1&A=2&b=x+y%26&c");
    expect(query).toEqual({ a: ["1,2"], b: ["x y&"], c: [""] });
    expect(new URL(url).search).toBe("?a=1&A=2&b=x+y%26&c");
  });

  it("with resolved dot segments in its path", async () => {
    const { url, params } = await sendRawToEcho("GET /files/x/../y%20z HTTP/1.1");
    expect(url).toBe("http://there.test/files/y%20z");
    expect(params).toEqual({ rest: "y z" });
  });

  it("with lower-case header names and repeated headers joined by a comma", async () => {
    const { headers } = await sendRawToEcho("GET /echo HTTP/1.1", "X-Many: 1", "x-many: 2");
    expect(headers["x-many"]).toBe("1,2");
  });

  it("with the caller's address and port appended to X-Forwarded-For", async () => {
    const { headers } = await callEcho("/echo");
    expect(headers["x-forwarded-for"]).toMatch(/^127\.0\.0\.1:\d+$/);
    const forged = await callEcho("/echo", { headers: { "x-forwarded-for": "10.0.0.1" } });
    expect(forged.headers["x-forwarded-for"]).toMatch(/^10\.0\.0\.1, 127\.0\.0\.1:\d+$/);
  });

  it("with an unchanged body for POST and DELETE", async () => {
    const bytes = Buffer.from([0, 255, 128, 10]);
    for (const method of ["POST", "DELETE"]) {
      expect((await callEcho("/echo", { method, body: bytes })).body).toBe(bytes.toString("base64"));
    }
  });

  it("without a body if the body is empty or chunked, or the method is GET", async () => {
    expect((await callEcho("/echo", { method: "POST" })).hasBody).toBe(false);
    const chunked = await sendRawToEcho("POST /echo HTTP/1.1", "Transfer-Encoding: chunked", "", "4", "text", "0");
    expect(chunked.hasBody).toBe(false);
    const getWithBody = await sendRawToEcho("GET /echo HTTP/1.1", "Content-Length: 4", "", "text");
    expect(getWithBody.hasBody).toBe(false);
  });

  it("with a JSON body that starts with a byte order mark", async () => {
    const answer = await callHost("/readJson", { method: "POST", body: '\uFEFF{"a":1}' });
    expect(await answer.json()).toEqual({ a: 1 });
  });

  it("with header values read as UTF-8, but a character beyond Latin-1 results in a 500", async () => {
    expect((await sendRawToEcho("GET /echo HTTP/1.1", "x-name: J\u00fcrgen")).headers["x-name"]).toBe("J\u00fcrgen");
    const answer = await sendRaw("GET /echo HTTP/1.1", "Host: x", "Connection: close", "x-name: \u0141ukasz");
    expect(answer).toMatch(/^HTTP\/1.1 500 /);
  });
});

describe("a request is rejected with an empty response", () => {
  it.each([
    ["an unknown path", "GET", "/nowhere", 404],
    ["a method that the route does not list (404, not 405)", "PUT", "/echo/1", 404],
    ["HEAD, if the route does not list it", "HEAD", "/echo/1", 404],
    ["OPTIONS, if the route does not list it", "OPTIONS", "/echo/1", 404],
    ["a disabled function", "GET", "/switchedOff", 404],
    ["a function that requires a key", "GET", "/guarded", 401],
    ["a route under the built-in prefix /admin", "GET", "/admin/mine", 404],
    ["a NUL in the path", "GET", "/echo/%00", 400],
  ])("%s: %s %s returns %i", async (_, method, path, status) => {
    const answer = await callHost(path, { method });
    expect(answer.status).toBe(status);
    expect(await answer.text()).toBe("");
  });

  it("if its Content-Length exceeds the limit, before the body arrives", async () => {
    const answer = await sendRaw("POST /echo HTTP/1.1", "Host: x", `Content-Length: ${MAX_BODY_BYTES + 1}`);
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
  });
});

describe("the response of a function", () => {
  it.each(["throws", "text", "informational", "brokenStream"])("is an empty 500 for the function %s", async (name) => {
    const answer = await callHost(`/${name}`);
    expect(answer.status).toBe(500);
    expect(await answer.text()).toBe("");
  });

  it("is a 500 if the function reads a body that is not JSON", async () => {
    expect((await callHost("/readJson", { method: "POST", body: "{" })).status).toBe(500);
  });

  it.each([
    ["nothing", 204],
    ["noContent", 204],
    ["notModified", 304],
  ])("has no body for the function %s", async (name, status) => {
    const answer = await callHost(`/${name}`);
    expect(answer.status).toBe(status);
    expect(await answer.text()).toBe("");
  });

  it("is text/plain if the body is text without a content type", async () => {
    const answer = await callHost("/plain");
    expect(answer.headers.get("content-type")).toBe("text/plain;charset=UTF-8");
    expect(await answer.text()).toBe("text");
  });

  it("has a Content-Length even if the body is a stream, because the host buffers it", async () => {
    const answer = await callHost("/stream");
    expect(answer.headers.get("content-length")).toBe("12");
    expect(await answer.text()).toBe("first second");
  });

  it("sets every cookie of the cookies array", async () => {
    expect((await callHost("/cookies")).headers.getSetCookie()).toEqual([
      "one=a%20b%3Bc; max-age=60; path=/; secure; samesite=lax; httponly",
      "two=2; path=/there; samesite=none",
      // The platform loses the fixture's `expires: new Date(0)`, so an app must use maxAge.
      "three=; path=/",
    ]);
  });

  it("sets only the last cookie if the function returns Set-Cookie headers", async () => {
    expect((await callHost("/setCookieHeaders")).headers.getSetCookie()).toEqual(["two=2"]);
  });
});

it("returns 429 above maxOutstandingRequests and makes requests above maxConcurrentRequests wait", async () => {
  const firstLogLine = host.lines.length;
  const gateFile = path.join(await mkdtemp(path.join(tmpdir(), "gate-")), "open");
  let rejectedCount = 0;
  const responses = Array.from({ length: 6 }, async () => {
    const { status } = await callHost(`/slow?until=${encodeURIComponent(gateFile)}`);
    if (status === 429) rejectedCount += 1;
    return status;
  });
  // The running requests wait for the gate file, so all six requests arrive before one finishes.
  await expect.poll(() => rejectedCount).toBe(responses.length - MAX_OUTSTANDING);
  await writeFile(gateFile, "");
  expect((await Promise.all(responses)).sort()).toEqual([200, 200, 200, 429, 429, 429]);
  const executed = () =>
    host.lines.slice(firstLogLine).filter((line) => line.includes("Executed 'Functions.slow'")).length;
  await host.waitForLine(() => executed() === MAX_OUTSTANDING);
  let running = 0;
  let maxRunning = 0;
  for (const line of host.lines.slice(firstLogLine)) {
    if (line.includes("Executing 'Functions.slow'")) running += 1;
    if (line.includes("Executed 'Functions.slow'")) running -= 1;
    maxRunning = Math.max(maxRunning, running);
  }
  expect(maxRunning).toBe(MAX_CONCURRENT);
});

describe("the host's own routes", () => {
  it("include a home page", async () => {
    const answer = await callHost("/");
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain("up and running");
  });

  it("do not include the diagnostic routes by default", async () => {
    expect((await callHost("/__host/modules")).status).toBe(404);
  });
});

it("returns 504 when a function exceeds the response timeout", async () => {
  const limited = await runHost({ args: ["--answer-limit", "1"] });
  expect((await fetch(`${limited.url}/slow?ms=60000`)).status).toBe(504);
  await limited.stop("SIGKILL");
});
