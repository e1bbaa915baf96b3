import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MAX_CURSOR_LENGTH } from "../../shared/platform/http/paging.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { rawRequest } from "../support/raw-request.ts";
import { ADMIN, type Answer, Service } from "../support/service.ts";

// How the service reads requests (body, query, path, headers) and rejects invalid ones, and what every answer contains.

let service: Service;
let token: string;
beforeAll(async () => {
  // Clients of these tests choose their addresses, as if another trusted proxy preceded the service.
  service = await Service.start({ env: { TRUSTED_PROXY_HOPS: "2" } });
  token = await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const SCAN = "/api/assets/discovery/scan";
const LOGIN = "/auth/login";
const ASSETS = "/api/assets/discovery/assets";

let addressCount = 0;
/** Returns the header of a client address that no call has used yet, because sign-ins are limited per address. */
const fromNewAddress = () => ({ "X-Forwarded-For": `198.51.100.${++addressCount}` });

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  service.call("POST", path, { token, body, headers });

/** Expects the problem document of `code`, with all its members. */
function expectProblem(answer: Answer, status: number, code: string): void {
  expect({ status: answer.status, code: answer.body?.code, text: answer.text }).toMatchObject({ status, code });
  expect(answer.headers.get("content-type")).toBe("application/problem+json");
  expect(answer.body).toMatchObject({
    type: `/problems/${code}`,
    title: expect.stringMatching(/\S/),
    status,
    detail: expect.stringMatching(/\S/),
    instance: answer.headers.get("x-request-id"),
    code,
  });
}

/** Returns the paths of a problem's errors, for example `body.currentPassword`. */
const errorPaths = (answer: Answer): string[] => answer.body.errors.map((error: { path: string }) => error.path);

describe("a body", () => {
  const wrongCredentials = { ...ADMIN, password: "not the password" };

  test("is accepted in camelCase and in snake_case", async () => {
    const passwords = { currentPassword: "not the current password", newPassword: "another long password" };
    const [camel, snake] = [
      await post("/auth/password", passwords),
      await post("/auth/password", {
        current_password: passwords.currentPassword,
        new_password: passwords.newPassword,
      }),
    ];
    // The only error is the wrong current password, so the members were read in both spellings.
    for (const answer of [camel, snake]) {
      expectProblem(answer, 400, "invalidRequest");
      expect(errorPaths(answer)).toEqual(["body.currentPassword"]);
    }
  });

  test("is accepted in both spellings in items of a list", async () => {
    const putCopies = async (copies: object) =>
      await service.admin("PUT", "/api/settings/integrations/devops/copies", { copies });
    const names = { variable: "X", vault_name: "kv-x", secretName: "x" };
    const bothSpellings = await putCopies([{ ...names, project_id: "none", group_id: 1 }]);
    expectProblem(bothSpellings, 400, "invalidRequest");
    // The only error is the unknown project, so the members were read in both spellings.
    expect(errorPaths(bothSpellings)).toEqual(["body.copies.0.projectId"]);
    const sameMemberTwice = await putCopies([{}, { ...names, secret_name: "y" }]);
    expectProblem(sameMemberTwice, 400, "invalidRequest");
    expect(errorPaths(sameMemberTwice)).toEqual(["body.copies.1.secret_name"]);
  });

  test("with both spellings of one member is rejected", async () => {
    const answer = await post("/auth/password", {
      currentPassword: "one password of two",
      current_password: "another of the two",
      newPassword: "another long password",
    });
    expectProblem(answer, 400, "invalidRequest");
    expect(errorPaths(answer)).toEqual(["body.current_password"]);
    expect(answer.body.detail).toContain("currentPassword");
  });

  test("with unknown members is rejected, and each is named", async () => {
    const answer = await post(SCAN, { mode: "full", dryRun: true, also: 1 });
    expectProblem(answer, 400, "invalidRequest");
    expect(errorPaths(answer)).toEqual(["body.dryRun", "body.also"]);
  });

  test.each([
    ["no members", {}, ["body.mode"]],
    ["an unknown value", { mode: "everything" }, ["body.mode"]],
    ["wrong types", { mode: 7, subscriptions: "all" }, ["body.mode", "body.subscriptions"]],
    [
      "an invalid item in a list",
      { mode: "full", subscriptions: ["8eab9bca-7137-4f76-a31c-dcc4acd2ff43", "x"] },
      ["body.subscriptions.1"],
    ],
    ["an array", [], ["body"]],
    ["null", null, ["body"]],
    ["a bare string", '"full"', ["body"]],
  ])("with %s is rejected with the path of the error", async (_what, body, paths) => {
    const answer = await post(SCAN, typeof body === "string" ? body : JSON.stringify(body));
    expectProblem(answer, 400, "invalidRequest");
    expect(errorPaths(answer)).toEqual(paths);
  });

  test.each([
    ["thirty", "must be a whole number from 1 to 3650"],
    [1.5, "must be a whole number from 1 to 3650"],
    [0, "must be at least 1"],
    [3651, "must be at most 3650"],
  ])("with the number of days %j is rejected with the allowed range", async (retentionDays, message) => {
    const answer = await post("/api/settings/retention/purge/alerts", { retentionDays });
    expectProblem(answer, 400, "invalidRequest");
    expect(answer.body.errors).toEqual([{ path: "body.retentionDays", message }]);
  });

  test.each(["{", '{"mode":"full",}', "{'mode':'full'}", "mode=full", "\u0000"])(
    "that is not JSON is rejected: %j",
    async (text) => {
      expectProblem(await post(SCAN, text), 400, "malformedRequest");
    },
  );

  test("that is not UTF-8 is rejected", async () => {
    const answer = await fetch(service.url + LOGIN, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...fromNewAddress() },
      body: Buffer.from('{"username":"m\xfcller","password":"x"}', "latin1"),
    });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ code: "malformedRequest" });
  });

  test("can start with a byte order mark", async () => {
    expectProblem(
      await post(LOGIN, `\uFEFF${JSON.stringify(wrongCredentials)}`, fromNewAddress()),
      401,
      "invalidCredentials",
    );
  });

  test.each(["text/plain", "application/x-www-form-urlencoded", "application/json5", "multipart/form-data", ""])(
    "of the type %j is rejected",
    async (type) => {
      expectProblem(await post(SCAN, { mode: "full" }, { "Content-Type": type }), 415, "unsupportedMediaType");
    },
  );

  test.each(["application/json; charset=utf-8", "APPLICATION/JSON", "application/merge-patch+json"])(
    "of the type %j is accepted",
    async (type) => {
      expectProblem(
        await post(LOGIN, wrongCredentials, { "Content-Type": type, ...fromNewAddress() }),
        401,
        "invalidCredentials",
      );
    },
  );

  test("that is missing is rejected with the hint to send a Content-Length", async () => {
    const withoutBody = await post(SCAN, undefined, { "Content-Type": "application/json" });
    expectProblem(withoutBody, 400, "missingBody");
    // The platform drops a body that is sent in chunks, so the service sees no body.
    const chunked = await rawRequest(
      service.url,
      [
        `POST ${SCAN} HTTP/1.1`,
        "Host: localhost",
        "Connection: close",
        `Authorization: Bearer ${token}`,
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
      ],
      '10\r\n{"mode": "full"}\r\n0\r\n\r\n',
    );
    expect(chunked.status).toBe(400);
    for (const text of [withoutBody.text, chunked.body]) {
      expect(JSON.parse(text)).toMatchObject({
        code: "missingBody",
        detail: expect.stringContaining("Content-Length"),
      });
    }
  });

  test("of more than 1 MiB is rejected", async () => {
    const [start, end] = ['{"mode":"', '"}'];
    const bodyOf = (bytes: number) => start + "x".repeat(bytes - start.length - end.length) + end;
    const MIB = 1024 * 1024;
    // This body is parsed, and its mode is unknown.
    expectProblem(await post(SCAN, bodyOf(MIB)), 400, "invalidRequest");
    expectProblem(await post(SCAN, bodyOf(MIB + 1)), 413, "bodyTooLarge");
  });

  test("with ten thousand nested levels is rejected as invalid", async () => {
    expectProblem(await post(SCAN, "[".repeat(10_000) + "]".repeat(10_000)), 400, "invalidRequest");
    expectProblem(await post(SCAN, `${'{"mode":'.repeat(10_000)}1${"}".repeat(10_000)}`), 400, "invalidRequest");
  });

  test.each(["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"])(
    "with a member named %s is rejected like any unknown member, without prototype pollution",
    async (name) => {
      const answer = await post(SCAN, `{"mode":"full","${name}":{"mode":"full","polluted":true}}`);
      expectProblem(answer, 400, "invalidRequest");
      expect(errorPaths(answer)).toEqual([`body.${name}`]);
      const others = await service.call("GET", "/auth/me", { token });
      expect(others.status).toBe(200);
      expect(others.body).not.toHaveProperty("polluted");
    },
  );

  test("with the name of an object property as username is answered like an unknown username", async () => {
    // A lookup with a plain property access would find these names on Object.prototype.
    const answer = await post(LOGIN, { username: "constructor", password: "__proto__" }, fromNewAddress());
    expectProblem(answer, 401, "invalidCredentials");
  });
});

/** Encodes a cursor's content as the service does. */
const encodeCursor = (text: string): string => Buffer.from(text).toString("base64url");

/** Lists that accept a cursor. */
const LISTS = [
  "/api/assets/discovery/scans",
  ASSETS,
  "/api/assets/discovery/vaults",
  "/compliance/violations",
  "/compliance/exemptions",
  "/compliance/frameworks",
  "/compliance/certificates/readiness",
  "/compliance/post-quantum",
  "/alerts/rules",
  "/alerts/history",
  "/alerts/snoozes",
  "/subscriptions",
  "/audit/entries",
];

describe("a cursor", () => {
  test.each(LISTS)("of %s with a lone surrogate is rejected", async (path) => {
    const { body } = await service.call("GET", `${path}?limit=1`, { token });
    const realContents = body.nextCursor === null ? [] : [Buffer.from(body.nextCursor, "base64url").toString()];
    const contents = [...realContents, '{"after":"x"}', '{"after":"x","at":"x"}', '["x"]', '"x"'];
    for (const content of contents) {
      // Replaces every JSON string that is no member name, for example `{"after":"x"}` by `{"after":"a\ud83d"}`.
      const invalidContent = content.replaceAll(/"[^"]*"(?!:)/g, '"a\\ud83d"');
      const answer = await service.call("GET", `${path}?cursor=${encodeCursor(invalidContent)}`, { token });
      expectProblem(answer, 400, "invalidCursor");
    }
  });

  test.each(LISTS)("of %s with other numbers is rejected, or answered as the API description says", async (path) => {
    const { body } = await service.call("GET", `${path}?limit=1`, { token });
    const content = body.nextCursor === null ? "{}" : Buffer.from(body.nextCursor, "base64url").toString();
    const numbers = content.match(/(?<=":)-?\d[\d.]*/g) ?? [];
    for (const [index] of numbers.entries()) {
      for (const other of ["-1", "-1e308", "1e308", "0.5"]) {
        let count = 0;
        const changed = content.replaceAll(/(?<=":)-?\d[\d.]*/g, (found) => (count++ === index ? other : found));
        // `call` compares the answer with the description.
        const { status } = await service.call("GET", `${path}?limit=1&cursor=${encodeCursor(changed)}`, { token });
        expect([200, 400], `${path} ${changed}`).toContain(status);
      }
    }
  });

  test.each(LISTS)("of %s is invalid as a cursor up to the maximum length, as a parameter beyond", async (path) => {
    const send = (cursor: string) => service.call("GET", `${path}?cursor=${encodeURIComponent(cursor)}`, { token });
    expectProblem(await send("a".repeat(MAX_CURSOR_LENGTH)), 400, "invalidCursor");
    // Each of the 2,000 characters of the last one takes 12 characters in the address: `%F0%9F%94%91`.
    const invalid = ["a".repeat(MAX_CURSOR_LENGTH + 1), "a".repeat(24_000), "a+b", "a=", "", "\u{1f511}".repeat(2_000)];
    for (const cursor of invalid) {
      const answer = await send(cursor);
      expectProblem(answer, 400, "invalidRequest");
      expect(errorPaths(answer)).toEqual(["query.cursor"]);
    }
  });

  test("is described with its length and its characters", async () => {
    const { body: document } = await service.call("GET", "/openapi.json");
    for (const path of LISTS) {
      const { parameters } = document.paths[path].get;
      const { schema } = parameters.find(({ name }: { name: string }) => name === "cursor");
      expect(schema, path).toMatchObject({ type: "string", maxLength: MAX_CURSOR_LENGTH });
      expect(new RegExp(schema.pattern).test("eyJhIjoxfQ.b-_"), path).toBe(true);
      expect(new RegExp(schema.pattern).test("a+b"), path).toBe(false);
    }
  });
});

describe("a text", () => {
  const SUBSCRIPTION = "11111111-2222-4333-8444-555555555555";
  const rule = { alertType: "expired", deliveryMethod: "email", deliveryMode: "digest", recipients: ["a@example.com"] };
  const inAMonth = new Date(Date.now() + 30 * DAY_MS).toISOString().slice(0, 10);
  const snooze = { ruleId: "01K00000000000000000000000", assetId: "kv-x.secret.y", until: inAMonth };
  const exemption = { checkId: "secret-content-type", scope: { type: "all" }, category: "waiver", until: inAMonth };
  /** Members that contain text: title, path of the endpoint, body with the text, and path of the member in a problem's errors. */
  const textMembers: [string, string, (text: string) => object, string][] = [
    ["a rule's name", "/alerts/rules", (name) => ({ ...rule, name }), "body.name"],
    ["a snooze's reason", "/alerts/snoozes", (reason) => ({ ...snooze, reason }), "body.reason"],
    ["an exemption's reason", "/compliance/exemptions", (reason) => ({ ...exemption, reason }), "body.reason"],
    [
      "an exemption's ticket",
      "/compliance/exemptions",
      (ticket) => ({ ...exemption, reason: "x", ticket }),
      "body.ticket",
    ],
    ["a subscription's name", "/subscriptions", (name) => ({ subscriptionId: SUBSCRIPTION, name }), "body.name"],
  ];
  /** Control characters, line breaks, characters that change the direction of text, and only spaces. */
  const forbiddenTexts = [
    "a\u0000b",
    "a\r\nBcc: x",
    "a\nb",
    "a\tb",
    "a\u2028b",
    "a\u202eb",
    "a\u2066b",
    "a\u0085b",
    "\u200f",
    "  ",
  ];

  test.each(textMembers)(
    "with control characters, or with only spaces, is rejected in %s",
    async (_what, path, bodyOf, where) => {
      for (const text of forbiddenTexts) {
        const answer = await post(path, bodyOf(text));
        expectProblem(answer, 400, "invalidRequest");
        expect(errorPaths(answer)).toEqual([where]);
      }
    },
  );

  test("in any script, with signs and emoji, is accepted in a rule's name", async () => {
    const created = await post("/alerts/rules", { ...rule, name: " Schlüssel 鍵 🔑 (prod): 10 % → on-call " });
    expect([created.status, created.body.name]).toEqual([201, "Schlüssel 鍵 🔑 (prod): 10 % → on-call"]);
    await service.call("DELETE", `/alerts/rules/${created.body.id}`, { token });
  });

  test("with a lone surrogate is rejected in values and in member names", async () => {
    for (const body of [
      '{"mode":"full","x":"\\ud800"}',
      '{"mode":"\\uDC00full"}',
      '{"\\ud800":1}',
      '["\\udfff\\ud83d"]',
    ]) {
      expectProblem(await post(SCAN, body), 400, "malformedRequest");
    }
    // A complete surrogate pair is a valid character.
    expectProblem(await post(SCAN, '{"mode":"\\ud83d\\udd11"}'), 400, "invalidRequest");
  });
});

describe("a query", () => {
  const listAssets = (query: string) => service.call("GET", `${ASSETS}?${query}`, { token });

  test.each([
    ["a parameter twice", "limit=1&limit=2", ["query.limit"]],
    ["an unknown parameter", "limit=1&colour=red", ["query.colour"]],
    ["both spellings of a parameter", "expiresBefore=2026-01-01&expires_before=2026-01-01", ["query.expires_before"]],
    ["a limit of 0", "limit=0", ["query.limit"]],
    ["a limit over 1000", "limit=1001", ["query.limit"]],
    ["a fraction as limit", "limit=1.5", ["query.limit"]],
    ["a negative offset", "offset=-1", ["query.offset"]],
    ["an empty value", "limit=", ["query.limit"]],
    ["an unknown type", "type=password", ["query.type"]],
    ["a date that does not exist", "expiresBefore=2026-02-30", ["query.expiresBefore"]],
    ["a time without a time zone", "expiresBefore=2026-02-01T00:00:00", ["query.expiresBefore"]],
    ["an invalid cursor", "cursor=abc", ["query.cursor"]],
    ["a cursor that contains a lone surrogate", `cursor=${encodeCursor('{"after":"\\ud800"}')}`, ["query.cursor"]],
    ["two invalid values", "limit=x&type=y", ["query.limit", "query.type"]],
    ["__proto__", "__proto__=x", ["query.__proto__"]],
    ["constructor", "constructor=x", ["query.constructor"]],
  ])("with %s is rejected with the parameter's name", async (_what, query, paths) => {
    const answer = await listAssets(query);
    expect({ status: answer.status, paths: answer.status === 400 && errorPaths(answer).sort() }).toEqual({
      status: 400,
      paths: paths.sort(),
    });
  });

  test("with an offset over 10,000 is rejected with a hint to use the cursor", async () => {
    const answer = await listAssets("offset=10001");
    expectProblem(answer, 400, "invalidRequest");
    expect(answer.body.detail).toContain("cursor");
  });

  test.each([
    "expiresBefore=2026-11-21",
    "expires_before=2026-11-21T10:00:00Z",
    "expiresAfter=2026-11-21T12:00:00%2B02:00",
  ])("can contain a date or a time, in both spellings: %s", async (query) => {
    expect((await listAssets(query)).status).toBe(200);
  });
});

describe("a path", () => {
  const call = (method: string, path: string) => service.call(method, path, { token });

  test.each([
    "/nothing",
    "/api",
    "/api/assets",
    "/auth",
    "/auth/login/again",
    "/health/deep",
    "/.env",
    "/api/v2/assets",
    "/health//",
    "/api//health",
  ])("%s that does not exist is a 404", async (path) => {
    expectProblem(await call("GET", path), 404, "unknownPath");
  });

  test.each([
    ["POST", "/health", "GET, HEAD"],
    ["GET", LOGIN, "POST"],
    ["PUT", SCAN, "POST"],
    ["DELETE", `${ASSETS}/kv.secret.x`, "GET, HEAD"],
    ["PATCH", "/auth/me", "GET, HEAD"],
    ["OPTIONS", "/auth/me", "GET, HEAD"],
    ["GET", `${SCAN}/01K/`, "DELETE"],
    ["GET", "/AUTH/Login", "POST"],
  ])("rejects the method %s on %s with 405 and allows %s", async (method, path, allow) => {
    const answer = await call(method, path);
    expectProblem(answer, 405, "methodNotAllowed");
    expect(answer.headers.get("allow")).toBe(allow);
  });

  test("that has no GET rejects HEAD with 405 and no body", async () => {
    const answer = await fetch(`${service.url}${LOGIN}`, { method: "HEAD" });
    expect([answer.status, answer.headers.get("allow"), await answer.text()]).toEqual([405, "POST", ""]);
  });

  test.each([
    ["/health", 200],
    ["/auth/me", 200],
    [`${ASSETS}?limit=1`, 200],
    ["/system/license/status", 200],
    ["/openapi.json", 200],
    ["/docs", 200],
    ["/docs/files/swagger-ui.css", 200],
    ["/", 200],
    [`${ASSETS}/kv.secret.none`, 404],
    ["/nothing", 404],
    [`${ASSETS}?limit=0`, 400],
  ])("answers HEAD like GET, without the body: %s, %i", async (path, status) => {
    const send = async (method: string) => {
      const headers = { Authorization: `Bearer ${token}`, "X-Request-Id": "one", "Accept-Encoding": "identity" };
      const answer = await fetch(service.url + path, { method, headers, redirect: "manual" });
      // The platform sets these headers.
      const platformHeaders = ["content-length", "transfer-encoding", "date", "vary", "connection", "keep-alive"];
      const comparedHeaders = [...answer.headers].filter(([name]) => !platformHeaders.includes(name));
      return { status: answer.status, headers: Object.fromEntries(comparedHeaders), text: await answer.text() };
    };
    const [head, get] = [await send("HEAD"), await send("GET")];
    expect([head.status, head.text]).toEqual([status, ""]);
    expect(head.headers).toEqual(get.headers);
  });

  test("that needs a token rejects HEAD without one", async () => {
    expect((await fetch(`${service.url}/auth/me`, { method: "HEAD" })).status).toBe(401);
  });

  test("can be written in any case and end with a slash", async () => {
    expect((await call("GET", "/HEALTH")).status).toBe(200);
    expect((await call("GET", "/health/")).status).toBe(200);
  });

  test("/ returns the web page, whose files can be cached forever", async () => {
    const answer = await call("GET", "/");
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    const files = [...answer.text.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g)].map((match) => match[1]!);
    expect(files.length).toBeGreaterThan(2);
    for (const file of files) {
      const { status, headers } = await call("GET", file);
      expect([status, headers.get("cache-control")]).toEqual([200, "public, max-age=31536000, immutable"]);
    }
    expect((await call("GET", "/page/none.js")).status).toBe(404);
  });

  test.each([
    ["that no asset has", "kv-x.secret.y"],
    ["without dots", "nothing"],
    ["with a slash", "kv-x.secret.a%2Fb"],
    ["with characters that a row key can't contain", "kv-x.secret.%23%3F%5C%09%0A"],
    ["that is percent-encoded twice", "%2525"],
    ["with a lone percent sign", "100%"],
    ["with bytes that are no UTF-8", "kv%FF%FE"],
    ["in another script", "kv-x.secret.ключ-🔑"],
    ["with the syntax of a filter", "kv-x.secret.' or PartitionKey ne '"],
    ["__proto__", "__proto__"],
    ["of eight thousand characters", `kv.secret.${"x".repeat(8000)}`],
  ])("with an id %s is a 404", async (_what, id) => {
    const asset = await call("GET", `${ASSETS}/${id}`);
    expectProblem(asset, 404, "notFound");
    expect(asset.text.length).toBeLessThan(2000);
    expectProblem(await call("GET", `${SCAN}/${id}/status`), 404, "notFound");
  });

  test("with dots does not reach files outside of the documentation", async () => {
    for (const path of ["/docs/files/..%2f..%2fhost.json", "/docs/files/..%5chost.json", "/docs/files/main.mjs"]) {
      expect((await call("GET", path)).status).toBe(404);
    }
    const answer = await rawRequest(service.url, [
      "GET /docs/files/../../host.json HTTP/1.1",
      "Host: localhost",
      "Connection: close",
    ]);
    expect(answer.status).toBe(404);
  });

  test("with a NUL is rejected by the web server", async () => {
    expect(
      (await fetch(`${service.url}${ASSETS}/a%00b`, { headers: { Authorization: `Bearer ${token}` } })).status,
    ).toBe(400);
  });
});

describe("every answer", () => {
  const SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "strict-transport-security": "max-age=63072000; includeSubDomains",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
  };

  test.each([
    ["GET", "/health", 200],
    ["GET", "/auth/me", 401],
    ["GET", "/nothing", 404],
    ["PATCH", "/health", 405],
    ["GET", `${ASSETS}?limit=0`, 400],
    ["POST", SCAN, 400],
  ])("has the security headers and does not name its software: %s %s, status %i", async (method, path, status) => {
    const answer = await service.call(method, path, status === 401 ? {} : { token });
    expect(answer.status).toBe(status);
    expect(Object.fromEntries(answer.headers)).toMatchObject(SECURITY_HEADERS);
    expect(answer.headers.get("x-powered-by") ?? answer.headers.get("server")).toBeNull();
  });

  test("has the caller's request id, also in a problem", async () => {
    for (const path of ["/health", "/nothing", "/auth/me"]) {
      const answer = await service.call("GET", path, { headers: { "X-Request-Id": "order_4711.retry-2" } });
      expect(answer.headers.get("x-request-id")).toBe("order_4711.retry-2");
      if (answer.status >= 400) expect(answer.body.instance).toBe("order_4711.retry-2");
    }
  });

  test.each(["", "two words", "a,b", "x".repeat(129), "<script>", '"', "a\tb", "%0d%0aSet-Cookie: a=b"])(
    "has a new request id instead of %j",
    async (id) => {
      const answers = [1, 2].map(() => service.call("GET", "/health", { headers: { "X-Request-Id": id } }));
      const ids = (await Promise.all(answers)).map(({ headers }) => headers.get("x-request-id"));
      // A ULID, for example 01KBJ2W6Y0Q3ZC5J9D8N7V4T1X.
      for (const newId of ids) expect(newId).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
      expect(ids[0]).not.toBe(ids[1]);
    },
  );

  test("that depends on a failing cloud service is 503 with Retry-After", async () => {
    const fault = service.cloud.control.addFault({ match: { operation: "identity.token" }, action: { kind: "deny" } });
    const answer = await service.call("GET", "/identity", { token });
    service.cloud.control.removeFault(fault);
    expectProblem(answer, 503, "unavailable");
    expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await service.call("GET", "/identity", { token })).status).toBe(200);
  });

  test("of 401 says in WWW-Authenticate whether a token is missing or invalid", async () => {
    const withoutToken = await service.call("GET", "/auth/me");
    expectProblem(withoutToken, 401, "unauthorized");
    expect(withoutToken.headers.get("www-authenticate")).toBe("Bearer");
    for (const header of [
      "Bearer nonsense",
      "Bearer",
      "Basic YWRtaW46YWRtaW4=",
      `bearer ${token}x`,
      `Token ${token}`,
      "",
    ]) {
      const answer = await service.call("GET", "/auth/me", { headers: { Authorization: header } });
      expectProblem(answer, 401, "unauthorized");
      expect(answer.headers.get("www-authenticate")).toBe('Bearer error="invalid_token"');
    }
  });

  test("is 401 for a token outside of the Authorization header", async () => {
    // The scheme's name can be in any case.
    expect((await service.call("GET", "/auth/me", { headers: { Authorization: `bearer ${token}` } })).status).toBe(200);
    for (const path of [`/auth/me?access_token=${token}`, `/auth/me?token=${token}`]) {
      expect((await service.call("GET", path)).status).toBe(401);
    }
    expect((await service.call("GET", "/auth/me", { headers: { Cookie: `access_token=${token}` } })).status).toBe(401);
  });

  test("contains no header that the caller tried to inject through the path", async () => {
    const answer = await rawRequest(service.url, [
      "GET /nothing%0d%0aSet-Cookie:%20a=b?x=%0d%0aX-Injected:%20yes HTTP/1.1",
      "Host: localhost",
      "Connection: close",
      "X-Request-Id: a\u0085b",
    ]);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect([...answer.headers.keys()]).not.toEqual(expect.arrayContaining(["set-cookie"]));
    expect([...answer.headers.keys()]).not.toEqual(expect.arrayContaining(["x-injected"]));
  });

  test("is not changed by headers that override the method or path in other servers", async () => {
    const answer = await service.call("GET", "/nothing", {
      token,
      headers: { "X-HTTP-Method-Override": "POST", "X-Original-URL": "/health", "X-Rewrite-URL": "/health" },
    });
    expectProblem(answer, 404, "unknownPath");
  });
});
