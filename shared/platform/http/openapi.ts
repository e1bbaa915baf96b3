import * as z from "zod";
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject } from "zod-openapi";
import { PRODUCT } from "../product.ts";
import { SESSION_COOKIE } from "./admission.ts";
import { describeByName } from "./describe-members.ts";
import {
  acceptsKey,
  type Endpoint,
  isVersioned,
  mayCall,
  type ResponseDeclaration,
  ROLES,
  type Role,
} from "./endpoint.ts";
import { IDEMPOTENCY_HEADER, REPLAYED_HEADER } from "./idempotency-headers.ts";
import type { Document } from "./openapi-document.ts";
import { addExamples, PROBLEM_EXAMPLES, problemExamples } from "./openapi-examples.ts";
import { addUnreadableRows } from "./openapi-unreadable-rows.ts";
import { type Webhook, webhooksOf } from "./openapi-webhooks.ts";
import { PROBLEMS, type ProblemCode } from "./problem.ts";

// Builds the OpenAPI document from the declarations of the endpoints.

const PROBLEM_CODES = Object.keys(PROBLEMS) as [ProblemCode, ...ProblemCode[]];

const ProblemDocument = z
  .looseObject({
    type: z.string().meta({ description: "`/problems/<code>`" }),
    title: z.string().meta({ description: "Short description of the problem, constant for each code." }),
    status: z.int().meta({ description: "HTTP status." }),
    detail: z.string().meta({ description: "How to fix the problem." }),
    instance: z.string().meta({ description: "Request ID, also in the X-Request-Id header and in the logs." }),
    code: z.enum(PROBLEM_CODES).meta({ description: "Stable problem code." }),
    errors: z
      .array(
        z.object({
          path: z.string().meta({
            description: "Location of the error, such as `body.mode` or `query.limit`.",
            example: "query.limit",
          }),
          message: z.string().meta({ description: "Description of the error.", example: "must be at most 1000" }),
        }),
      )
      .optional()
      .meta({ description: "All errors of the request." }),
    send: z
      .array(z.record(z.string(), z.unknown()))
      .optional()
      .meta({
        description:
          "Present only if a rotation can't start. Each item contains members to add to the request's body, and one item is enough. Null stands for a value that only you know.",
        example: [{ removeExpired: true }],
      }),
  })
  .meta({ id: "Problem", description: "An RFC 9457 problem document." });

const RESPONSE_HEADERS = {
  "X-Request-Id": {
    description: "Request ID of the caller if it is valid, otherwise a new one.",
    schema: { type: "string" as const },
  },
};
const numberHeader = (description: string) => ({ description, schema: { type: "integer" as const, minimum: 0 } });
/** Header of successful answers to GET. */
const UNREADABLE_HEADER = {
  "X-Unreadable-Rows": numberHeader(
    "Number of stored rows that could not be read and are therefore missing in the answer. Absent if there are none.",
  ),
};
const LIMIT_HEADERS = {
  "RateLimit-Limit": numberHeader("Limit of the window with the fewest remaining calls."),
  "RateLimit-Remaining": numberHeader("Remaining calls in that window."),
  "RateLimit-Reset": numberHeader("Seconds until the window allows calls again."),
};

/** Returns the problem statuses that an endpoint can answer with, from its declaration alone. */
function problemStatusesOf(endpoint: Endpoint<never>): number[] {
  const statuses = [500, 503];
  if (endpoint.params || endpoint.query || endpoint.body) statuses.push(400);
  if (endpoint.access !== "open") statuses.push(401, 403);
  if (endpoint.tier === "pro") statuses.push(403);
  if (endpoint.route.includes("{")) statuses.push(404);
  if (endpoint.method === "POST" || endpoint.method === "PUT" || endpoint.method === "DELETE") statuses.push(409);
  // For the header `Idempotency-Key`, which can be invalid or not accepted.
  if (endpoint.method === "POST" && !endpoint.harmlessRepeat) statuses.push(400);
  // The resource of an earlier request with the same key may have been removed since.
  if (endpoint.repeat) statuses.push(404, 422);
  if (endpoint.conditional) statuses.push(412);
  if (endpoint.body) statuses.push(413, 415);
  if (endpoint.rateLimit !== "none") statuses.push(429);
  for (const code of endpoint.problems ?? []) statuses.push(PROBLEMS[code].status);
  return [...new Set(statuses)];
}

/**
 * Conditions for problem codes. All other codes are listed for every endpoint that can answer with their status. A code with
 * the condition `false` is listed only for endpoints that declare it in `problems`.
 */
const CONDITIONS: Partial<Record<ProblemCode, (endpoint: Endpoint<never>) => boolean>> = {
  missingBody: ({ body, bodyOptional }) => body !== undefined && !bodyOptional,
  malformedRequest: ({ body }) => body !== undefined,
  invalidRequest: ({ params, query, body, repeat }) => Boolean(params ?? query ?? body ?? repeat),
  valueRequired: ({ params, query, body }) => Boolean(params ?? query ?? body),
  idempotencyKeyNotAccepted: (endpoint) => endpoint.method === "POST" && !acceptsKey(endpoint),
  idempotencyKeyReused: ({ repeat }) => repeat !== undefined,
  requestInProgress: ({ repeat }) => repeat !== undefined,
  outcomeUnknown: ({ repeat }) => repeat !== undefined,
  invalidCursor: ({ query }) => query !== undefined && "cursor" in query.shape,
  signInStale: () => false,
  signInFailed: () => false,
  signInRefused: () => false,
  ssoOnly: () => false,
  unauthorized: ({ access }) => access !== "open",
  invalidCredentials: () => false,
  passwordExpired: () => false,
  secondFactorRequired: () => false,
  secondFactorFailed: () => false,
  tooManyAttempts: () => false,
  forbidden: ({ access }) => access !== "open",
  interactiveOnly: ({ interactive = false }) => interactive,
  sessionOnly: ({ credential }) => credential === "session",
  programTokenOnly: ({ credential }) => credential === "programToken",
  passwordChangeRequired: ({ access, beforePasswordChange }) => access !== "open" && !beforePasswordChange,
  secondFactorEnrollmentRequired: ({ access, beforePasswordChange, beforeEnrollment }) =>
    access !== "open" && !beforePasswordChange && !beforeEnrollment,
  stepUpRequired: ({ guarded }) => guarded !== undefined,
  approvalRequired: ({ guarded }) => guarded !== undefined,
  crossSite: ({ access, method }) => access !== "open" && method !== "GET",
  licenseRequired: ({ tier }) => tier === "pro",
  scanRunning: () => false,
  unknownPath: () => false,
};

/** Returns the problem codes that an endpoint can answer with for a status. */
function codesOf(endpoint: Endpoint<never>, status: number): ProblemCode[] {
  const canReturn = (code: ProblemCode) => endpoint.problems?.includes(code) || (CONDITIONS[code]?.(endpoint) ?? true);
  return PROBLEM_CODES.filter((code) => PROBLEMS[code].status === status && canReturn(code));
}

const LOCATIONS: Record<number, string> = {
  201: "Address of the resource.",
  302: "Address to which the browser is redirected.",
  303: "Address to which the browser is redirected.",
};

const VERSION_HEADERS = {
  ETag: {
    description:
      "Version of this answer. Send it as If-None-Match to get 304 while the answer is the same, or as If-Match with a change of the resource.",
    schema: { type: "string" as const },
  },
  "Cache-Control": {
    description: "`no-cache`: the answer may be kept, and must be revalidated. `private` if it depends on the caller.",
    schema: { type: "string" as const },
  },
  Vary: { description: "Request headers on which the answer depends.", schema: { type: "string" as const } },
};

/** Returns the response for a caller that has the current answer. */
const notModified = (endpoint: Endpoint<never>) => ({
  description: "The answer has not changed: an ETag in If-None-Match is current.",
  headers: { ...RESPONSE_HEADERS, ...(endpoint.rateLimit !== "none" && LIMIT_HEADERS), ...VERSION_HEADERS },
});

/**
 * The schema has no pattern. A pattern would promise 400 for every other character, but the platform itself answers 500 to some
 * of them, before the service can reject the key.
 */
const IDEMPOTENCY_KEY = z.string().min(1).max(255).optional().meta({
  description:
    "Unique text of visible ASCII characters that you choose, such as a UUID. A repeat of the request with the same key within 24 hours takes no further effect, and returns the resource as it is then.",
});

/** The request headers of conditional requests. */
const CONDITIONAL_HEADERS = {
  "If-Match": z
    .string()
    .optional()
    .meta({ description: "ETag that the change is based on. Returns 412 when it is outdated." }),
  "If-None-Match": z.string().optional().meta({
    description: "ETags of the answers that the caller has, or `*`. Returns 304 if one is current.",
  }),
};

function headersOf(status: number, endpoint: Endpoint<never>) {
  const { method, standalone, rateLimit, cookies = [] } = endpoint;
  const header = (description: string) => ({ description, schema: { type: "string" as const } });
  return {
    ...RESPONSE_HEADERS,
    ...(rateLimit !== "none" && LIMIT_HEADERS),
    ...(method === "GET" && status === 200 && !standalone && UNREADABLE_HEADER),
    ...(status === 200 && isVersioned(endpoint) && VERSION_HEADERS),
    ...(endpoint.repeat && {
      [REPLAYED_HEADER]: header("`true` if the answer is that of an earlier request with the same Idempotency-Key."),
    }),
    ...(status in LOCATIONS && { Location: header(LOCATIONS[status]!) }),
    ...(cookies.length > 0 && { "Set-Cookie": header(`Sets or deletes the cookies ${cookies.join(", ")}.`) }),
  };
}

/**
 * Alternative media types of an answer: a file that a query parameter requests, or a page for browsers. An extension, so that
 * generated clients have one type per answer.
 */
const OTHER_MEDIA_TYPES = "x-other-media-types";

function responseOf(status: number, declared: ResponseDeclaration, endpoint: Endpoint<never>) {
  const description = status === 201 ? "Created" : "Success";
  const headers = headersOf(status, endpoint);
  if (declared instanceof z.ZodType)
    return { description, headers, content: { "application/json": { schema: declared } } };
  if ("json" in declared) {
    const content = { "application/json": { schema: declared.json } };
    return { description, headers, content, [OTHER_MEDIA_TYPES]: declared.or };
  }
  if (declared.mediaType === null) return { description: declared.description, headers };
  const { example } = declared;
  const bytes = declared.mediaType === "application/pdf" && { format: "binary" };
  // A file in a JSON format, such as SARIF, is an object. Another specification describes it.
  const isJson = declared.mediaType.endsWith("+json");
  const schema = isJson ? { type: "object" as const } : { type: "string" as const, ...bytes };
  const file = { schema, ...(example === undefined ? {} : { example: isJson ? JSON.parse(example) : example }) };
  return { description: declared.description, headers, content: { [declared.mediaType]: file } };
}

const GUARDED =
  "With the settings `requireStepUp` and `requireApproval`, which are off by default, this request can need a confirmation (403 `stepUpRequired`, 403 `approvalRequired`).";

/** Lists the roles that may call an endpoint, lowest first: "operator or admin". */
const rolesFor = (least: Role): string => ROLES.filter((role) => mayCall(role, least)).join(" or ");

function requestHeadersOf(endpoint: Endpoint<never>) {
  const headers = {
    ...(endpoint.repeat && { [IDEMPOTENCY_HEADER]: IDEMPOTENCY_KEY }),
    ...(endpoint.conditional && { "If-Match": CONDITIONAL_HEADERS["If-Match"] }),
    ...(isVersioned(endpoint) && { "If-None-Match": CONDITIONAL_HEADERS["If-None-Match"] }),
  };
  return Object.keys(headers).length === 0 ? {} : { header: z.object(headers) };
}

/** Returns the credentials that an endpoint accepts, for the API description. */
function securityOf({ access, credential }: Endpoint<never>): Record<string, string[]>[] {
  if (access === "open") return [];
  if (credential === "session") return [{ sessionCookie: [] }];
  return [{ bearerAuth: [] }, { sessionCookie: [] }];
}

function operationOf(endpoint: Endpoint<never>): ZodOpenApiOperationObject {
  const problems = problemStatusesOf(endpoint).map((status) => [
    String(status),
    {
      description: codesOf(endpoint, status)
        .map((code) => PROBLEMS[code].title)
        .join("; "),
      headers: {
        ...RESPONSE_HEADERS,
        ...((status === 429 || status === 503 || (status === 409 && endpoint.repeat)) && {
          "Retry-After": numberHeader("Seconds to wait."),
        }),
      },
      content: {
        "application/problem+json": { schema: ProblemDocument, examples: problemExamples(codesOf(endpoint, status)) },
      },
      ...(endpoint.page && { [OTHER_MEDIA_TYPES]: ["text/html"] }),
    },
  ]);
  const access =
    endpoint.access === "open"
      ? "Open to anyone: requires no token."
      : `Requires the role ${rolesFor(endpoint.access)}${endpoint.tier === "pro" ? " and a PRO license" : ""}.`;
  return {
    operationId: endpoint.name,
    summary: endpoint.summary,
    description: [endpoint.description, endpoint.guarded && GUARDED, access].filter(Boolean).join("\n\n"),
    tags: [endpoint.tag],
    security: securityOf(endpoint),
    requestParams: {
      ...(endpoint.params ? { path: endpoint.params } : {}),
      ...(endpoint.query ? { query: endpoint.query } : {}),
      ...requestHeadersOf(endpoint),
    },
    ...(endpoint.body
      ? {
          requestBody: {
            required: !endpoint.bodyOptional,
            content: {
              "application/json": { schema: endpoint.body },
              ...(endpoint.form && { "application/x-www-form-urlencoded": { schema: endpoint.body } }),
            },
          },
        }
      : {}),
    responses: {
      ...Object.fromEntries(problems),
      ...(isVersioned(endpoint) && { 304: notModified(endpoint) }),
      ...Object.fromEntries(
        Object.entries(endpoint.responds).map(([status, declared]) => [
          status,
          responseOf(Number(status), declared, endpoint),
        ]),
      ),
    },
  };
}

/** Parts of the document besides the endpoints. */
export interface OpenApiParts {
  version: string;
  /** The tags of endpoints with their descriptions. */
  tags: Readonly<Record<string, string>>;
  webhooks: readonly Webhook[];
}

/** Creates the OpenAPI 3.1 document of all declared endpoints. */
export function openApiDocument(
  declared: readonly Endpoint<never>[],
  { version, tags, webhooks }: OpenApiParts,
): object {
  const endpoints = declared.filter(({ undocumented }) => !undocumented);
  const paths: ZodOpenApiPathsObject = {};
  const usedCodes = new Set<string>();
  for (const endpoint of endpoints) {
    for (const status of problemStatusesOf(endpoint)) for (const code of codesOf(endpoint, status)) usedCodes.add(code);
    const path = `/${endpoint.route}`;
    paths[path] = { ...paths[path], [endpoint.method.toLowerCase()]: operationOf(endpoint) };
  }
  const codes = Object.entries(PROBLEMS).map(([code, { status, title }]) => `| \`${code}\` | ${status} | ${title} |`);
  const document = createDocument({
    openapi: "3.1.0",
    info: {
      title: PRODUCT,
      version,
      description: [
        "Inventories the secrets, keys and certificates of Azure key vaults, reports their health, scores their",
        "compliance and alerts before they expire. Bodies are JSON in camelCase; request fields and query parameters are",
        "also accepted in snake_case. Times are ISO 8601 in UTC. HEAD works wherever GET does. Responses over 1 KiB are",
        "compressed for callers that accept gzip. Errors are RFC 9457 problem documents with these codes:",
        "",
        "| code | status | title |",
        "| --- | --- | --- |",
        ...codes,
        "",
        "503 while storage does not respond reliably: it is then unknown whether a change was made, and the audit log contains",
        "only its intent. Read the resource again, or repeat the request: a change that was already made returns 200,",
        "404 or 409.",
      ].join("\n"),
    },
    servers: [{ url: "/" }],
    tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
    paths,
    webhooks: webhooksOf(webhooks),
    components: {
      examples: Object.fromEntries(Object.entries(PROBLEM_EXAMPLES).filter(([code]) => usedCodes.has(code))),
      securitySchemes: {
        bearerAuth: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description:
            "The access_token of POST /auth/login, an API token of POST /auth/tokens, or a Microsoft Entra access token if the API is registered there.",
        },
        sessionCookie: {
          type: "apiKey",
          in: "cookie",
          name: SESSION_COOKIE,
          description:
            "For browsers: set by POST /auth/login with `session: true`. Changes must come from a page of this service (Sec-Fetch-Site or Origin).",
        },
      },
    },
  }) as unknown as Document;
  addUnreadableRows(document);
  describeByName(document);
  addExamples(document, endpoints);
  return document;
}
