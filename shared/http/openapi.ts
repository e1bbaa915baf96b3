import * as z from "zod";
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject } from "zod-openapi";
import { SESSION_COOKIE } from "./admission.ts";
import { describeByName } from "./described.ts";
import type { Document } from "./document.ts";
import { type Endpoint, mayCall, type ResponseDeclaration, ROLES, type Role } from "./endpoint.ts";
import { addExamples, PROBLEM_EXAMPLES, problemExamples } from "./examples.ts";
import { PROBLEMS, type ProblemCode } from "./problem.ts";

const PROBLEM_CODES = Object.keys(PROBLEMS) as [ProblemCode, ...ProblemCode[]];

const ProblemDocument = z
  .looseObject({
    type: z.string().meta({ description: "`/problems/<code>`" }),
    title: z.string().meta({ description: "What went wrong, in a few words: always the same for a code." }),
    status: z.int().meta({ description: "The HTTP status." }),
    detail: z.string().meta({ description: "What to do about it." }),
    instance: z.string().meta({ description: "The request id, also in the X-Request-Id header and in the logs." }),
    code: z.enum(PROBLEM_CODES).meta({ description: "Stable." }),
    errors: z
      .array(
        z.object({
          path: z.string().meta({ description: "Where: `body.mode`, `query.limit`.", example: "query.limit" }),
          message: z.string().meta({ description: "What is wrong with it.", example: "must be at most 1000" }),
        }),
      )
      .optional()
      .meta({ description: "Each thing that is wrong with the request." }),
  })
  .meta({ id: "Problem", description: "An RFC 9457 problem document." });

const RESPONSE_HEADERS = {
  "X-Request-Id": { description: "The caller's, if sane, else a new one.", schema: { type: "string" as const } },
};
const LIMIT_HEADERS = {
  "RateLimit-Limit": { description: "Of the window with the least left.", schema: { type: "string" as const } },
  "RateLimit-Remaining": { description: "Calls left in that window.", schema: { type: "string" as const } },
  "RateLimit-Reset": { description: "Seconds until it has room again.", schema: { type: "string" as const } },
};

/** Which problems an endpoint can answer with, from its declaration alone. */
function problemsOf(endpoint: Endpoint<never>): number[] {
  const statuses = [500, 503];
  if (endpoint.params || endpoint.query || endpoint.body) statuses.push(400);
  if (endpoint.access !== "open") statuses.push(401, 403);
  if (endpoint.tier === "pro") statuses.push(403);
  if (endpoint.route.includes("{")) statuses.push(404);
  if (endpoint.method === "POST" || endpoint.method === "PUT" || endpoint.method === "DELETE") statuses.push(409);
  if (endpoint.conditional) statuses.push(412);
  if (endpoint.body) statuses.push(413, 415);
  if (endpoint.rateLimit !== "none") statuses.push(429);
  for (const code of endpoint.problems ?? []) statuses.push(PROBLEMS[code].status);
  return [...new Set(statuses)];
}

/** Codes that an endpoint answers with only where its declaration says so; without this every one of its status is named. */
const ONLY_WHERE: Partial<Record<ProblemCode, (endpoint: Endpoint<never>) => boolean>> = {
  missingBody: ({ body, bodyOptional }) => body !== undefined && !bodyOptional,
  malformedRequest: ({ body }) => body !== undefined,
  invalidCursor: ({ query }) => query !== undefined && "cursor" in query.shape,
  signInStale: () => false,
  signInFailed: () => false,
  signInRefused: () => false,
  ssoOnly: () => false,
  unauthorized: ({ access }) => access !== "open",
  invalidCredentials: () => false,
  tooManyAttempts: () => false,
  forbidden: ({ access }) => access !== "open",
  interactiveOnly: ({ interactive = false }) => interactive,
  passwordChangeRequired: ({ access, beforePasswordChange }) => access !== "open" && !beforePasswordChange,
  crossSite: ({ access, method }) => access !== "open" && method !== "GET",
  licenseRequired: ({ tier }) => tier === "pro",
  scanRunning: () => false,
  unknownPath: () => false,
};

/** What an endpoint may answer with a status. */
function codesOf(endpoint: Endpoint<never>, status: number): ProblemCode[] {
  const may = (code: ProblemCode) => endpoint.problems?.includes(code) || (ONLY_WHERE[code]?.(endpoint) ?? true);
  return PROBLEM_CODES.filter((code) => PROBLEMS[code].status === status && may(code));
}

const LOCATIONS: Record<number, string> = {
  201: "Where it can be read.",
  302: "Where the browser goes on.",
  303: "Where the browser goes on.",
};

function headersOf(status: number, { rateLimit, cookies = [] }: Endpoint<never>) {
  const header = (description: string) => ({ description, schema: { type: "string" as const } });
  return {
    ...RESPONSE_HEADERS,
    ...(rateLimit !== "none" && LIMIT_HEADERS),
    ...(status in LOCATIONS && { Location: header(LOCATIONS[status]!) }),
    ...(cookies.length > 0 && { "Set-Cookie": header(`Of the cookies ${cookies.join(", ")}, as the request has it.`) }),
  };
}

/**
 * What an answer may be instead of the one media type it is described with: a file where a parameter of the specification asks
 * for it, a page for browsers. An extension, so that generated clients have one type for each answer.
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
  const file = { schema: { type: "string" as const, ...bytes }, ...(example === undefined ? {} : { example }) };
  return { description: declared.description, headers, content: { [declared.mediaType]: file } };
}

/** The roles that may call it, the least first: "operator or admin". */
const rolesFor = (least: Role): string => ROLES.filter((role) => mayCall(role, least)).join(" or ");

function operationOf(endpoint: Endpoint<never>): ZodOpenApiOperationObject {
  const problems = problemsOf(endpoint).map((status) => [
    String(status),
    {
      description: codesOf(endpoint, status)
        .map((code) => PROBLEMS[code].title)
        .join("; "),
      headers: {
        ...RESPONSE_HEADERS,
        ...(status === 429 || status === 503
          ? { "Retry-After": { description: "Whole seconds.", schema: { type: "string" as const } } }
          : {}),
      },
      content: {
        "application/problem+json": { schema: ProblemDocument, examples: problemExamples(codesOf(endpoint, status)) },
      },
      ...(endpoint.page && { [OTHER_MEDIA_TYPES]: ["text/html"] }),
    },
  ]);
  const access =
    endpoint.access === "open"
      ? "Open: needs no token."
      : `Needs the role ${rolesFor(endpoint.access)}${endpoint.tier === "pro" ? " and a PRO licence" : ""}.`;
  return {
    operationId: endpoint.name,
    summary: endpoint.summary,
    description: [endpoint.description, access].filter(Boolean).join("\n\n"),
    tags: [endpoint.tag],
    security: endpoint.access === "open" ? [] : [{ bearerAuth: [] }, { sessionCookie: [] }],
    requestParams: {
      ...(endpoint.params ? { path: endpoint.params } : {}),
      ...(endpoint.query ? { query: endpoint.query } : {}),
      ...(endpoint.conditional
        ? {
            header: z.object({
              "If-Match": z
                .string()
                .optional()
                .meta({ description: "The etag the change is based on; 412 when it is stale." }),
            }),
          }
        : {}),
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
      ...Object.fromEntries(
        Object.entries(endpoint.responds).map(([status, declared]) => [
          status,
          responseOf(Number(status), declared, endpoint),
        ]),
      ),
    },
  };
}

/** The OpenAPI 3.1 document of all declared endpoints. */
export function openApiDocument(endpoints: readonly Endpoint<never>[], version: string): object {
  const paths: ZodOpenApiPathsObject = {};
  for (const endpoint of endpoints.filter((one) => !one.undocumented)) {
    const path = `/${endpoint.route}`;
    paths[path] = { ...paths[path], [endpoint.method.toLowerCase()]: operationOf(endpoint) };
  }
  const codes = Object.entries(PROBLEMS).map(([code, { status, title }]) => `| \`${code}\` | ${status} | ${title} |`);
  const document = createDocument({
    openapi: "3.1.0",
    info: {
      title: "Credential and Secret Lifecycle Service",
      version,
      description: [
        "Inventories the secrets, keys and certificates of Azure key vaults, says how healthy they are, scores their",
        "compliance and warns before they expire. Bodies are JSON in camelCase; request members and query parameters are",
        "also taken in snake_case. Instants are ISO 8601 in UTC. HEAD is answered wherever GET is. Answers over 1 KiB are",
        "compressed for callers that take gzip. Errors are RFC 9457 problem documents with these codes:",
        "",
        "| code | status | title |",
        "| --- | --- | --- |",
        ...codes,
        "",
        "503 while storage does not answer clearly: whether a change was made is then not known, and the audit log has its",
        "intent only. Read the resource again, or repeat the request: a change that was made already is answered with 200,",
        "404 or 409.",
      ].join("\n"),
    },
    servers: [{ url: "/" }],
    paths,
    components: {
      examples: PROBLEM_EXAMPLES,
      securitySchemes: {
        bearerAuth: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description:
            "The access_token of POST /auth/login, an API token of POST /auth/tokens, or an access token of Entra for this API where one is registered.",
        },
        sessionCookie: {
          type: "apiKey",
          in: "cookie",
          name: SESSION_COOKIE,
          description:
            "Browsers only: set by POST /auth/login with `session: true`. What changes something must come from a page of this service (Sec-Fetch-Site or Origin).",
        },
      },
    },
  }) as unknown as Document;
  describeByName(document);
  addExamples(document, endpoints);
  return document;
}
