// Tests of requests for renewal information (RFC 9773: when a certificate should be renewed), with valid and invalid responses of
// certificate authorities.
import type { ServerResponse } from "node:http";
import { serverCertificate } from "simulated-cloud/tls.ts";
import { expect, onTestFinished, test } from "vitest";
import { certificateIdOf, createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { type OutgoingAnswer, Unreachable } from "../../shared/platform/outgoing/outgoing.ts";
import { startFakeServer } from "../azure/odd-server.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";
import { trust } from "../support/trust.ts";

const NOW = new Date("2026-11-27T12:00:00Z");
const DIRECTORY = "https://acme.example/directory";
const nowSeconds = NOW.getTime() / 1000;

type Answer = Partial<OutgoingAnswer> & { json?: unknown };

/** Returns a client of an authority with these answers, the addresses that it requests, and its clock. */
function clientOf(answer: Answer, directory: Answer = { json: DEFAULT_DIRECTORY }) {
  const addresses: string[] = [];
  const clock = { time: NOW, now: () => clock.time };
  const answers = { directory, renewalInfo: answer };
  const client = createRenewalInformation({
    config: { ARI_DIRECTORIES: [{ issuer: "Let's Encrypt", directory: DIRECTORY }] },
    clock,
    outgoing: {
      async send(address) {
        addresses.push(address);
        const { json = null, ...others } = address === DIRECTORY ? answers.directory : answers.renewalInfo;
        return { status: 200, headers: {}, body: Buffer.from(JSON.stringify(json)), complete: true, ...others };
      },
    },
  });
  return { client, addresses, clock, answers };
}
const DEFAULT_DIRECTORY = { renewalInfo: "https://acme.example/renewal-info/" };
const WINDOW = { suggestedWindow: { start: "2026-12-01T00:00:00Z", end: "2026-12-02T00:00:00.5+00:00" } };

test("the identifier is that of the example in RFC 9773", () => {
  const authorityKeyId = "69:88:5B:6B:87:46:40:41:E1:B3:7B:84:7B:A0:AE:2C:DE:01:C8:D4".replaceAll(":", "");
  expect(certificateIdOf({ authorityKeyId, serialNumber: "0087654321" })).toBe("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
  expect(certificateIdOf({ serialNumber: "0087654321" })).toBeUndefined();
});

test("a certificate with a serial number longer than that of any authority has no identifier", () => {
  const authorityKeyId = "ab".repeat(20);
  expect(certificateIdOf({ authorityKeyId, serialNumber: "11".repeat(64) })).toBeDefined();
  expect(certificateIdOf({ authorityKeyId, serialNumber: "11".repeat(65) })).toBeUndefined();
  expect(certificateIdOf({ authorityKeyId: "ab".repeat(10_000), serialNumber: "11" })).toBeUndefined();
});

test("each window is requested once per certificate, and the directory once for all", async () => {
  const { client, addresses } = clientOf({ json: WINDOW, headers: { "retry-after": "3600" } });
  expect(client.directoryOf("CN=R12, O=Let's Encrypt, C=US")).toBe(DIRECTORY);
  expect(client.directoryOf("CN=Acme CA")).toBeUndefined();
  const window = await client.windowOf(DIRECTORY, "a.b");
  await client.windowOf(DIRECTORY, "c.d");
  expect(window).toEqual({
    windowStart: Date.parse("2026-12-01") / 1000,
    windowEnd: Date.parse("2026-12-02") / 1000,
    checkedAt: nowSeconds,
    retryAfter: nowSeconds + 3600,
  });
  const base = "https://acme.example/renewal-info";
  expect(addresses).toEqual([DIRECTORY, `${base}/a.b`, `${base}/c.d`]);
});

test.each([
  ["a date", "Fri, 27 Nov 2026 13:00:00 GMT", 3600],
  ["nothing", undefined, 21_600],
  ["less than a minute", "1", 60],
  ["more than a day", "999999999", 86_400],
  ["a date in the past", "Fri, 27 Nov 2020 13:00:00 GMT", 60],
  ["no date", "soon", 21_600],
  ["a number of 400 digits", "9".repeat(400), 21_600],
])("Retry-After with %s leads to a wait of at least a minute and at most a day", async (_, header, seconds) => {
  const { client } = clientOf({ json: WINDOW, headers: header === undefined ? {} : { "retry-after": header } });
  expect((await client.windowOf(DIRECTORY, "a.b")).retryAfter).toBe(nowSeconds + seconds);
});

test.each([
  ["another status", { status: 404, json: {} }, /answered 404/],
  ["no JSON", { body: Buffer.from("<html>") }, /RFC 9773 does not allow/],
  ["an answer over the limit", { json: WINDOW, complete: false }, /RFC 9773 does not allow/],
  ["a window without an end", { json: { suggestedWindow: { start: "2026-12-01T00:00:00Z" } } }, /does not allow/],
  [
    "a window that ends before it starts",
    { json: { suggestedWindow: { start: "2026-12-02T00:00:00Z", end: "2026-12-01T00:00:00Z" } } },
    /ends before it starts/,
  ],
  [
    "a window after the year 9999",
    { json: { suggestedWindow: { start: "2026-12-02T00:00:00Z", end: "9999-12-31T23:59:59-23:59" } } },
    /does not allow/,
  ],
  [
    "a window before 1970",
    { json: { suggestedWindow: { start: "0000-01-01T00:00:00Z", end: "2026-12-02T00:00:00Z" } } },
    /does not allow/,
  ],
  ["a redirect", { status: 302, headers: { location: "https://10.0.0.1/" } }, /answered 302/],
])("%s is a failure that says when to send the next request", async (_, answer, message) => {
  const { client } = clientOf(answer);
  const failure = await client.windowOf(DIRECTORY, "a.b").catch((error: unknown) => error);
  expect(failure).toMatchObject({ name: "NoRenewalInformation", message: expect.stringMatching(message) });
  expect((failure as { retryAfter: number }).retryAfter).toBeGreaterThan(nowSeconds);
});

test.each([429, 503])(
  "after three answers with the status %i, an authority gets no request for an hour",
  async (status) => {
    const { client, addresses, clock, answers } = clientOf({ status, json: {} });
    const requestWindow = () => client.windowOf(DIRECTORY, "a.b");
    for (let failures = 0; failures < 5; failures++) await expect(requestWindow()).rejects.toThrow();
    expect(addresses.filter((address) => address !== DIRECTORY)).toHaveLength(3);
    await expect(requestWindow()).rejects.toMatchObject({
      message: "acme.example did not answer earlier requests.",
      retryAfter: nowSeconds + 3600,
    });
    clock.time = new Date(NOW.getTime() + 3_600_000);
    answers.renewalInfo = { json: WINDOW };
    await requestWindow();
    await requestWindow();
  },
);

test("an authority that sends Retry-After gets the next request at that time", async () => {
  const { client, addresses, clock } = clientOf({ status: 429, json: {}, headers: { "retry-after": "120" } });
  const requestWindow = () => client.windowOf(DIRECTORY, "a.b");
  for (let failures = 0; failures < 4; failures++)
    await expect(requestWindow()).rejects.toMatchObject({ retryAfter: nowSeconds + 120 });
  const before = addresses.length;
  clock.time = new Date(NOW.getTime() + 120_000);
  await expect(requestWindow()).rejects.toThrow(/answered 429/);
  expect(addresses.length).toBe(before + 1);
});

test("requests that the end of a scan aborted don't count as failures of the authority", async () => {
  const { client, addresses } = clientOf({ status: 503, json: {} });
  for (let failures = 0; failures < 4; failures++)
    await expect(client.windowOf(DIRECTORY, "a.b", AbortSignal.abort())).rejects.toThrow(/answered 503/);
  // The directory once, and the window four times.
  expect(addresses).toHaveLength(5);
});

test("error responses about single certificates don't count as failures of the authority", async () => {
  const { client, addresses } = clientOf({ status: 404, json: {} });
  for (let failures = 0; failures < 5; failures++)
    await expect(client.windowOf(DIRECTORY, "a.b")).rejects.toThrow(/answered 404/);
  // The directory once, and the window five times.
  expect(addresses).toHaveLength(6);
});

test.each([
  ["without renewal information", { json: {} }, "acme.example offers no renewal information."],
  ["that does not exist", { status: 404 }, "acme.example answered 404."],
  ["with a plain address", { json: { renewalInfo: "http://acme.example/renewal-info" } }, /RFC 9773 does not allow/],
])("a directory %s is read once an hour, not for each certificate", async (_, directory, message) => {
  const { client, addresses, clock, answers } = clientOf({ json: WINDOW }, directory);
  for (const id of ["a.b", "c.d", "e.f"]) await expect(client.windowOf(DIRECTORY, id)).rejects.toThrow(message);
  expect(addresses).toEqual([DIRECTORY]);
  clock.time = new Date(NOW.getTime() + 3_600_000);
  answers.directory = { json: DEFAULT_DIRECTORY };
  await client.windowOf(DIRECTORY, "a.b");
});

test("a directory that did not answer is read again", async () => {
  const { client, addresses, answers } = clientOf({ json: WINDOW }, { status: 503 });
  await expect(client.windowOf(DIRECTORY, "a.b")).rejects.toThrow(/answered 503/);
  answers.directory = { json: DEFAULT_DIRECTORY };
  await client.windowOf(DIRECTORY, "a.b");
  expect(addresses).toHaveLength(3);
});

test("an authority that does not answer is a failure", async () => {
  const client = createRenewalInformation({
    config: { ARI_DIRECTORIES: [{ issuer: "x", directory: DIRECTORY }] },
    clock: { now: () => NOW },
    outgoing: {
      send: () => Promise.reject(new Unreachable("acme.example was not reached.", { sent: false, permanent: false })),
    },
  });
  await expect(client.windowOf(DIRECTORY, "a.b")).rejects.toMatchObject({ isUnreachable: true });
});

test.each([
  ["names an address", (response: ServerResponse, at: string) => response.end(JSON.stringify({ renewalInfo: at }))],
  ["redirects", (response: ServerResponse, location: string) => response.writeHead(302, { location }).end()],
])("a directory that %s in the service's own network causes no request there", async (how, respond) => {
  trust(serverCertificate(CLOUD_KEYS).authorityPath);
  const [authority, internal] = await Promise.all([startFakeServer(), startFakeServer()]);
  onTestFinished(async () => void (await Promise.all([authority.stop(), internal.stop()])));
  authority.setResponse((_, response) => respond(response, `https://127.0.0.1:${internal.port}/renewal-info`));
  const directory = `https://127.0.0.1:${authority.port}/directory`;
  const config = { ARI_DIRECTORIES: [{ issuer: "x", directory }] };
  const client = createRenewalInformation({ config, clock: { now: () => NOW } });
  const message = how === "redirects" ? "127.0.0.1 answered 302." : /is blocked: it is not public/;
  await expect(client.windowOf(directory, "a.b")).rejects.toThrow(message);
  expect([authority.requests.length, internal.requests]).toEqual([1, []]);
});
