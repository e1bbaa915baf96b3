// Answers of certificate authorities to requests for renewal information (RFC 9773), valid and not.
import { expect, test } from "vitest";
import { certificateIdOf, createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { type OutgoingAnswer, Unreachable } from "../../shared/platform/outgoing/outgoing.ts";

const NOW = new Date("2026-11-27T12:00:00Z");
const DIRECTORY = "https://acme.example/directory";
const nowSeconds = NOW.getTime() / 1000;

/** Returns a client of an authority with this answer, and the addresses that it requests. */
function clientOf(answer: Partial<OutgoingAnswer> & { json?: unknown }, directory: unknown = DEFAULT_DIRECTORY) {
  const addresses: string[] = [];
  const client = createRenewalInformation({
    config: { ARI_DIRECTORIES: [{ issuer: "Let's Encrypt", directory: DIRECTORY }] },
    clock: { now: () => NOW },
    outgoing: {
      async send(address) {
        addresses.push(address);
        const isDirectory = address === DIRECTORY;
        const body = Buffer.from(JSON.stringify(isDirectory ? directory : (answer.json ?? null)));
        if (isDirectory) return { status: 200, headers: {}, body, complete: true };
        return { status: 200, headers: {}, body, complete: true, ...answer };
      },
    },
  });
  return { client, addresses };
}
const DEFAULT_DIRECTORY = { renewalInfo: "https://acme.example/renewal-info/" };
const WINDOW = { suggestedWindow: { start: "2026-12-01T00:00:00Z", end: "2026-12-02T00:00:00.5+00:00" } };

test("the identifier is that of the example in RFC 9773", () => {
  const authorityKeyId = "69:88:5B:6B:87:46:40:41:E1:B3:7B:84:7B:A0:AE:2C:DE:01:C8:D4".replaceAll(":", "");
  expect(certificateIdOf({ authorityKeyId, serialNumber: "0087654321" })).toBe("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
  expect(certificateIdOf({ serialNumber: "0087654321" })).toBeUndefined();
});

test("a window is asked for once per certificate, the directory once", async () => {
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
])("Retry-After with %s is kept within a minute and a day", async (_, header, seconds) => {
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
])("%s is a failure with a time for the next request", async (_, answer, message) => {
  const { client } = clientOf(answer);
  const failure = await client.windowOf(DIRECTORY, "a.b").catch((error: unknown) => error);
  expect(failure).toMatchObject({ name: "NoRenewalInformation", message: expect.stringMatching(message) });
  expect((failure as { retryAfter: number }).retryAfter).toBeGreaterThan(nowSeconds);
});

test.each([
  [429, true],
  [503, true],
  [404, false],
])("after the status %i, %s: the scan stops to ask the authority", async (status, isUnreachable) => {
  const { client } = clientOf({ status, json: {}, headers: { "retry-after": "120" } });
  await expect(client.windowOf(DIRECTORY, "a.b")).rejects.toMatchObject({
    isUnreachable,
    retryAfter: nowSeconds + 120,
  });
});

test("an authority without renewal information, and one that does not answer, are failures", async () => {
  await expect(clientOf({}, {}).client.windowOf(DIRECTORY, "a.b")).rejects.toThrow(/offers no renewal information/);
  const client = createRenewalInformation({
    config: { ARI_DIRECTORIES: [{ issuer: "x", directory: DIRECTORY }] },
    clock: { now: () => NOW },
    outgoing: {
      send: () => Promise.reject(new Unreachable("acme.example was not reached.", { sent: false, permanent: false })),
    },
  });
  await expect(client.windowOf(DIRECTORY, "a.b")).rejects.toMatchObject({ isUnreachable: true });
});
