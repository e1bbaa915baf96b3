import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { PROBLEMS } from "../../shared/platform/http/problem.ts";
import { Service } from "../support/service.ts";

// Checks `/openapi.json` as a running service returns it. descriptions.test.ts checks its texts and examples.

const { endpoints } = await declarations();

interface Operation {
  operationId: string;
  security: object[];
  requestBody?: { content: Record<string, { schema: object }> };
  responses: Record<
    string,
    { description: string; content?: Record<string, { schema: object; examples?: object }>; headers?: object }
  >;
  parameters?: { name: string; in: string; required?: boolean; schema?: { enum?: string[] } }[];
}

let service: Service;
let document: {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, unknown>;
};
beforeAll(async () => {
  service = await Service.start();
  document = (await service.call("GET", "/openapi.json")).body;
});
afterAll(() => service.stop());

const SIGNED_IN = [{ bearerAuth: [] }, { sessionCookie: [] }];
/** Endpoints that only a person in a browser can call. */
const SESSION = [{ sessionCookie: [] }];
const operations = () => Object.values(document.paths).flatMap((path) => Object.values(path));

test("the document is valid OpenAPI 3.1, according to an external validator", async () => {
  expect(document.openapi).toMatch(/^3\.1\.\d$/);
  const result = await new Validator().validate(structuredClone(document));
  expect(result).toEqual({ valid: true });
});

test("the document contains every declared endpoint and no others", () => {
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => `${operationId}: ${method.toUpperCase()} ${path}`),
  );
  const declared = endpoints
    .filter(({ undocumented }) => !undocumented)
    .map(({ name, method, route }) => `${name}: ${method} /${route}`);
  expect(described.sort()).toEqual(declared.sort());
});

test("the document requires no credential for endpoints that are declared open, and a session for the others", () => {
  const publicOperations = operations().filter(({ security }) => security.length === 0);
  const declared = endpoints.filter(({ access, undocumented }) => access === "open" && !undocumented);
  expect(publicOperations.map(({ operationId }) => operationId).sort()).toEqual(
    declared.map(({ name }) => name).sort(),
  );
  for (const { security } of operations()) expect([[], SIGNED_IN, SESSION]).toContainEqual(security);
});

test("every response is described with its schema, and every problem as a problem document", () => {
  for (const { operationId, responses } of operations()) {
    for (const [status, { description, content }] of Object.entries(responses)) {
      expect([operationId, status, description]).toEqual([operationId, status, expect.stringMatching(/\S/)]);
      const types = Object.keys(content ?? {});
      if (Number(status) >= 400) expect(types).toEqual(["application/problem+json"]);
      // Generated clients have one type per response.
      else expect([operationId, types.length]).toEqual([operationId, Number(status) < 300 ? 1 : 0]);
    }
  }
});

test("an operation lists the problem codes of each status that it can return", () => {
  /** Returns the codes of an operation by status, for example `{ 401: "unauthorized" }`. */
  const problemCodes = (method: string, path: string) =>
    Object.fromEntries(
      Object.entries(document.paths[path]![method]!.responses).flatMap(([status, { content }]) => {
        const { examples } = content?.["application/problem+json"] ?? {};
        return examples ? [[status, Object.keys(examples).join()]] : [];
      }),
    );
  const ofEveryEndpoint = { 500: "internal", 503: "unavailable,rowUnreadable,storeIsNewer" };
  const ofEveryRead = {
    ...ofEveryEndpoint,
    401: "unauthorized",
    403: "forbidden,passwordChangeRequired,secondFactorEnrollmentRequired",
    429: "rateLimited",
  };
  const conflicts = Object.entries(PROBLEMS).flatMap(([code, { status }]) => (status === 409 ? [code] : []));
  // `scanRunning` is only for endpoints that declare it, the other two for endpoints that accept an `Idempotency-Key`.
  const notOfEveryChange = ["scanRunning", "requestInProgress", "outcomeUnknown"];
  const ofEveryChange = {
    ...ofEveryRead,
    403: `${ofEveryRead[403]},crossSite`,
    409: conflicts.filter((code) => !notOfEveryChange.includes(code)).join(),
    413: "bodyTooLarge",
    415: "unsupportedMediaType",
  };
  expect(problemCodes("get", "/health")).toMatchObject(ofEveryEndpoint);
  expect(problemCodes("get", "/api/assets/discovery/assets")).toEqual({
    ...ofEveryRead,
    400: "invalidRequest,valueRequired,invalidCursor",
  });
  expect(problemCodes("post", "/api/settings/retention/purge")).toEqual({
    ...ofEveryChange,
    400: "malformedRequest,invalidRequest,valueRequired",
  });
  expect(problemCodes("put", "/api/automation/rotation/apps/{app_id}/policy")).toEqual({
    ...ofEveryChange,
    400: "malformedRequest,invalidRequest,missingBody,valueRequired",
    403: `${ofEveryRead[403]},stepUpRequired,approvalRequired,crossSite,licenseRequired`,
    404: "notFound",
    412: "preconditionFailed",
  });
  expect(problemCodes("post", "/auth/login")).toEqual({
    ...ofEveryEndpoint,
    400: "malformedRequest,invalidRequest,missingBody,valueRequired,idempotencyKeyNotAccepted",
    401: "invalidCredentials,passwordExpired,secondFactorRequired,secondFactorFailed",
    403: "ssoOnly,crossSite",
    409: ofEveryChange[409],
    413: ofEveryChange[413],
    415: ofEveryChange[415],
    429: "rateLimited,tooManyAttempts",
  });
  expect(problemCodes("post", "/api/assets/discovery/scan")).toMatchObject({
    400: "malformedRequest,invalidRequest,missingBody,valueRequired",
    409: conflicts.join(),
    422: "idempotencyKeyReused",
  });
});

test("the document names servers, credentials, cookies and headers", () => {
  expect(document).toMatchObject({ servers: [{ url: "/" }] });
  const described = expect.stringMatching(/\S/);
  expect(document.components.securitySchemes).toEqual({
    bearerAuth: { type: "http", scheme: "bearer", bearerFormat: "JWT", description: described },
    sessionCookie: { type: "apiKey", in: "cookie", name: "__Host-session", description: described },
  });
  const list = document.paths["/api/assets/discovery/assets"]!.get!;
  expect(list).toMatchObject({ responses: { 200: { "x-other-media-types": ["text/csv"] } } });
  const signIn = document.paths["/auth/sso/login"]!.get!;
  expect(signIn).toMatchObject({ responses: { 400: { "x-other-media-types": ["text/html"] } } });
  const text = { description: described, schema: { type: "string" } };
  const number = { description: described, schema: { type: "integer", minimum: 0 } };
  expect(list.responses["200"]!.headers).toEqual({
    "X-Request-Id": text,
    "RateLimit-Limit": number,
    "RateLimit-Remaining": number,
    "RateLimit-Reset": number,
    "X-Unreadable-Rows": number,
  });
  for (const status of ["429", "503"])
    expect(list.responses[status]!.headers).toEqual({ "X-Request-Id": text, "Retry-After": number });
  expect(list.responses["401"]!.headers).toEqual({ "X-Request-Id": text });
});

test("responses that redirect or set cookies are described with their headers", () => {
  const headersOf = (method: string, path: string, status: string) =>
    Object.keys(document.paths[path]![method]!.responses[status]!.headers ?? {});
  expect(headersOf("get", "/auth/sso/login", "302")).toEqual(expect.arrayContaining(["Location", "Set-Cookie"]));
  expect(headersOf("get", "/auth/sso/callback", "302")).toEqual(expect.arrayContaining(["Location", "Set-Cookie"]));
  expect(headersOf("post", "/auth/sso/callback", "303")).toEqual(expect.arrayContaining(["Location", "Set-Cookie"]));
  expect(headersOf("post", "/auth/login", "200")).toContain("Set-Cookie");
  expect(headersOf("post", "/auth/users", "201")).toContain("Location");
  expect(headersOf("get", "/auth/me", "200")).not.toContain("Set-Cookie");
});

test("every problem code is documented with its stable status", () => {
  const byStatus = Map.groupBy(Object.entries(PROBLEMS), ([, { status }]) => status);
  expect(
    Object.fromEntries([...byStatus].map(([status, all]) => [status, all.map(([code]) => code).join(" ")])),
  ).toEqual({
    400: "malformedRequest invalidRequest missingBody valueRequired invalidCursor idempotencyKeyNotAccepted signInStale signInFailed",
    401: "unauthorized invalidCredentials passwordExpired secondFactorRequired secondFactorFailed",
    403: "forbidden interactiveOnly sessionOnly programTokenOnly passwordChangeRequired secondFactorEnrollmentRequired stepUpRequired approvalRequired ssoOnly signInRefused crossSite licenseRequired",
    404: "notFound unknownPath",
    405: "methodNotAllowed",
    409: "conflict alreadyExists serviceVault rotationUnfinished willBreak notRotatable noRoomForSecret notFinishable syncLoop scanRunning requestInProgress outcomeUnknown",
    412: "preconditionFailed",
    413: "bodyTooLarge",
    415: "unsupportedMediaType",
    422: "idempotencyKeyReused",
    429: "rateLimited tooManyAttempts",
    500: "internal",
    503: "unavailable rowUnreadable storeIsNewer",
  });
  const text = JSON.stringify(document);
  for (const code of Object.keys(PROBLEMS)) expect(text).toContain(`\`${code}\``);
});

test("path parameters and a few of queries are required, all other query parameters are optional", () => {
  // The text of a search; the address of an endpoint, which has no ID, that is removed.
  const requiredInQuery = (operationId: string, name: string) =>
    name === "q" || (operationId === "removeCertificateEndpoint" && name !== "port");
  for (const { operationId, parameters = [] } of operations()) {
    for (const { name, in: where, required = false } of parameters) {
      const mustBe = where === "path" || requiredInQuery(operationId, name);
      expect({ operationId, name, where, required }).toEqual({ operationId, name, where, required: mustBe });
    }
  }
});

test("the path of a setting lists every category and key", async () => {
  const { parameters = [] } = document.paths["/api/settings/{category}/{key}"]!.delete!;
  const named = parameters.map(({ name, schema }) => [name, schema?.enum?.toSorted()]);
  const { text } = await service.admin("GET", "/api/settings/all");
  const keys = [...text.matchAll(/"key":"(\w+)"/g)].map(([, key]) => key);
  expect(keys.length).toBeGreaterThan(10);
  expect(Object.fromEntries(named)).toMatchObject({
    key: keys.toSorted(),
    category: expect.arrayContaining(["features"]),
  });
});

test("no documented response has a member for a secret", () => {
  const secretNames =
    /^(password|newPassword|currentPassword|clientSecret|secretAccessKey|webhookUrl|oidcClientSecret)$/;
  const secretMembers = operations().flatMap(({ operationId, responses }) =>
    Object.values(responses).flatMap(({ content = {} }) =>
      Object.values(content).flatMap(({ schema }) =>
        membersOf(schema)
          .filter((name) => secretNames.test(name))
          .map((name) => `${operationId}: ${name}`),
      ),
    ),
  );
  expect(secretMembers).toEqual([]);
});

/** Returns the names of all members of a schema at any depth, including referenced schemas. */
function membersOf(schema: unknown, seen = new Set<unknown>()): string[] {
  if (typeof schema !== "object" || schema === null || seen.has(schema)) return [];
  seen.add(schema);
  const { properties = {}, $ref } = schema as { properties?: object; $ref?: string };
  const names = Array.isArray(schema) ? [] : Object.keys(properties);
  const target = $ref
    ?.slice(2)
    .split("/")
    .reduce<unknown>((member, name) => (member as Record<string, unknown>)[name], document);
  return [...names, ...membersOf(target, seen), ...Object.values(schema).flatMap((member) => membersOf(member, seen))];
}

test("request and response schemas have names, so that generated clients have named types", () => {
  type Schema = { $ref?: string; items?: Schema; anyOf?: Schema[] };
  const isNamed = ({ $ref, items, anyOf }: Schema): boolean =>
    ($ref ?? "").length > "#/components/schemas/".length || [...(items ? [items] : []), ...(anyOf ?? [])].some(isNamed);
  let schemas = 0;
  for (const { operationId, requestBody, responses } of operations()) {
    // The identity provider's page sends a form.
    const contents =
      operationId === "ssoSamlCallback"
        ? []
        : [requestBody?.content, ...Object.values(responses).map(({ content }) => content)];
    for (const content of contents) {
      const schema = content?.["application/json"]?.schema;
      if (schema === undefined) continue;
      expect(isNamed(schema), operationId).toBe(true);
      schemas++;
    }
  }
  expect(schemas).toBeGreaterThan(150);
});
