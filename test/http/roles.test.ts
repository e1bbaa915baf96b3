import { type Cloud, startCloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { createEntraTokens } from "../../shared/access/entra.ts";
import {
  admit,
  type Credential,
  type Gate,
  SESSION_COOKIE,
  type UnauthenticatedRequest,
} from "../../shared/platform/http/admission.ts";
import { type Actor, ROLES, type Role, type Tier } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemClock } from "../../shared/platform/runtime.ts";
import { CALLER, type Instance, useDeployments } from "../access/instances.ts";
import { recordingLog, testConfig } from "../azure/services.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

const { endpoints } = await declarations();

/*
 * Checks who may call each endpoint. Every caller of docs/credentials.md (a credential with its role) is admitted to every
 * endpoint, without HTTP and without running the endpoint's handler, and the result is compared with docs/roles-matrix.md.
 */
const CREDENTIALS_PAGE = "docs/credentials.md";
const MATRIX_PAGE = "docs/roles-matrix.md";
const matrix = tableUnder(MATRIX_PAGE, "## Endpoints");
const callers = tableUnder(CREDENTIALS_PAGE, "## Callers");
const idOf = ({ method, route }: { method: string; route: string }) => `${method} /${route}`;

const PASSWORD = "a password of their own";
const ORIGIN = "https://service.example";

const nextDeployment = useDeployments(1);
let cloud: Cloud;
let instance: Instance;
/**
 * A credential as sent in headers, and the result of its authentication: the actor, a problem, or undefined for no credential.
 */
interface SentCredential {
  headers: Record<string, string>;
  authenticated: Actor | Problem | undefined;
}

/** The credentials of the callers, by the caller's name in docs/credentials.md. `PASSWORD_DUE` is not in the page. */
const credentials = new Map<string, SentCredential>();
/** An administrator who must choose a new password. */
const PASSWORD_DUE = "due";

beforeAll(async () => {
  const withoutBootstrapAdmin = { BOOTSTRAP_ADMIN_USERNAME: undefined, BOOTSTRAP_ADMIN_PASSWORD: undefined };
  instance = nextDeployment().start({ config: withoutBootstrapAdmin });
  const { access } = instance;
  const create = (username: string, role: Role) => access.users.create({ username, password: PASSWORD, role }, CALLER);
  const signIn = async (username: string) =>
    (await access.signIn({ username, password: PASSWORD }, CALLER)).access_token;
  const apiTokenOf = async (owner: Actor, role: Role) =>
    (await access.apiTokens.create(owner, { name: role, role, expiresInDays: 30 }, CALLER)).token;
  /** Adds a caller with a bearer token. */
  const addBearer = async (caller: string, token: string) => {
    const authenticated = await access.authenticate({ kind: "bearer", token });
    credentials.set(caller, { headers: { Authorization: `Bearer ${token}` }, authenticated });
    return authenticated as Actor;
  };

  credentials.set("no credential", { headers: {}, authenticated: undefined });
  for (const role of ROLES) {
    const article = /^[ao]/.test(role) ? "an" : "a";
    await create(role, role);
    const actor = await addBearer(`the token of ${article} ${role}`, await signIn(role));
    const { cookie } = await access.signInToSession({ username: role, password: PASSWORD }, CALLER, undefined);
    const headers = { Cookie: `${SESSION_COOKIE}=${cookie.value}`, "Sec-Fetch-Site": "same-origin" };
    const credential: Credential = { kind: "session", cookie: cookie.value };
    const authenticated = await access.authenticate(credential);
    credentials.set(`the session of ${article} ${role}`, { headers, authenticated });
    if (role !== "admin") continue;
    for (const tokenRole of ROLES) {
      await addBearer(`an administrator's API token with the role ${tokenRole}`, await apiTokenOf(actor, tokenRole));
    }
  }
  for (const [caller, from, to] of [
    ["an auditor's API token, after the auditor became operator", "auditor", "operator"],
    ["an administrator's API token, after the administrator became user", "admin", "user"],
  ] as const) {
    await create(`former-${from}`, from);
    const owner: Actor = {
      username: `former-${from}`,
      role: from,
      credential: { kind: "session", id: "", since: new Date() },
    };
    const token = await apiTokenOf(owner, from);
    await access.users.update(owner.username, { role: to }, undefined, CALLER);
    await addBearer(caller, token);
  }
  await create("deleted", "admin");
  const revokedToken = await signIn("deleted");
  await access.users.remove("deleted", undefined, CALLER);
  await addBearer("an expired, revoked or invalid credential", revokedToken);
  await create(PASSWORD_DUE, "admin");
  await access.users.update(PASSWORD_DUE, { password: `${PASSWORD} now` }, undefined, CALLER);
  const { access_token } = await access.signIn({ username: PASSWORD_DUE, password: `${PASSWORD} now` }, CALLER);
  await addBearer(PASSWORD_DUE, access_token);
  cloud = await startCloud({ company: "small", keys: CLOUD_KEYS });
  const config = testConfig(cloud.environment);
  const entra = createEntraTokens({ config, clock: systemClock, log: recordingLog() });
  for (const { caller } of callers.filter((row) => row.caller!.startsWith("an Entra access token"))) {
    // The name of the caller contains its app roles, for example Lifecycle.Operator.
    const roles = caller!.match(/Lifecycle\.\w+/g) ?? [];
    const token = await cloud.control.apiToken({ claims: { roles } });
    const authenticated = await entra.authenticate(token);
    credentials.set(caller!, { headers: { Authorization: `Bearer ${token}` }, authenticated });
  }
});
afterAll(async () => {
  await cloud?.stop();
});

const allowed = { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
/** A rate limiter that allows every call. */
const unlimited = { take: async () => allowed, cleanUp: async () => {} };

/** Runs the checks that precede the endpoint's handler. Returns `admitted`, or the code of the problem. */
async function admissionResult(
  endpoint: (typeof endpoints)[number],
  { headers, authenticated }: SentCredential,
  tier: Tier,
): Promise<string> {
  const gate: Gate = {
    checkStore: async () => {},
    authenticate: async () => authenticated ?? new Problem("internal", "No credential was sent."),
    tier: async () => tier,
    recordRejection: async () => {},
    confirmations: async () => ({ stepUp: false, approval: false }),
    confirm: async () => {},
    idempotency: undefined as never,
    limiter: unlimited,
    signInLimiter: unlimited,
    pace: { waitForSlot: async () => {} },
    translate: () => undefined,
  };
  const request: UnauthenticatedRequest = {
    headers: new Headers(headers),
    address: "192.0.2.1",
    requestId: "1",
    origin: ORIGIN,
  };
  return await admit(endpoint, request, gate, {}).then(
    () => "admitted",
    (problem: Problem) => problem.code,
  );
}

type CallerKind = "session" | "token" | "program";

/** Returns the kind of a caller's credential. Undefined for a caller without a valid one. */
function kindOf({ authenticated }: SentCredential): CallerKind | undefined {
  if (authenticated === undefined) return undefined;
  if (authenticated instanceof Problem) return authenticated.code === "forbidden" ? "program" : undefined;
  const { kind } = authenticated.credential;
  return kind === "session" || kind === "token" ? kind : "program";
}

/**
 * Returns the result that a row of the matrix promises to a caller. If several checks fail, the result is that of the first
 * one.
 *
 * @param role - A column of the matrix: `nobody` or a role. Or `denied`, for a valid credential without any role.
 */
function expectedResult(
  matrixRow: Record<string, string>,
  role: string,
  { kind, passwordDue = false, tier = "pro" as Tier }: { kind?: CallerKind; passwordDue?: boolean; tier?: Tier },
): string {
  const allows = (column: string) => matrixRow[column] === "yes";
  if (role === "nobody" && !allows("nobody")) return "unauthorized";
  // An endpoint for programs reads no cookie.
  if (kind === "session" && !allows("sessions")) return "unauthorized";
  if (role === "denied" && !allows("nobody")) return "forbidden";
  if (passwordDue && !allows("password due")) return "passwordChangeRequired";
  if (!allows(role === "denied" ? "nobody" : role)) return "forbidden";
  if (kind === "program" && !allows("programs")) return allows("sign-in tokens") ? "interactiveOnly" : "sessionOnly";
  if (kind === "token" && !allows("sign-in tokens")) return allows("programs") ? "programTokenOnly" : "sessionOnly";
  return tier === "core" && !allows("without license") ? "licenseRequired" : "admitted";
}

const declaredEndpoints = endpoints.map((endpoint) => ({ ...endpoint, id: idOf(endpoint) }));

test(`every endpoint has a row in ${MATRIX_PAGE}: npm run roles-page writes it`, () => {
  expect(matrix.map(({ endpoint }) => endpoint).sort()).toEqual(declaredEndpoints.map(({ id }) => id).sort());
  for (const { endpoint: _, ...cells } of matrix)
    for (const cell of Object.values(cells)) expect(cell).toMatch(/^(yes|–)$/);
});

test(`every caller in ${CREDENTIALS_PAGE} is tested, and has the role that the page states`, () => {
  expect(callers.map(({ caller }) => caller!).filter((caller) => !credentials.has(caller))).toEqual([]);
  for (const { caller, role, program } of callers) {
    const { authenticated } = credentials.get(caller!)!;
    const actor = authenticated === undefined || authenticated instanceof Problem ? undefined : authenticated;
    const isDenied = authenticated instanceof Problem && authenticated.code === "forbidden";
    expect([caller, isDenied ? "denied" : (actor?.role ?? "nobody")]).toEqual([caller, role]);
    const isProgram = isDenied || actor?.credential.kind === "apiToken" || actor?.credential.kind === "entra";
    expect([caller, isProgram ? "yes" : "–"]).toEqual([caller, program]);
  }
});

describe("an endpoint", () => {
  test.each(declaredEndpoints)("$id admits the callers that the matrix names", async (endpoint) => {
    const matrixRow = matrix.find((row) => row.endpoint === endpoint.id);
    if (!matrixRow) throw new Error(`${MATRIX_PAGE} has no row for ${endpoint.id}. Run npm run roles-page.`);
    for (const tier of ["pro", "core"] as const) {
      for (const { caller, role } of callers) {
        const kind = kindOf(credentials.get(caller!)!);
        const result = await admissionResult(endpoint, credentials.get(caller!)!, tier);
        const expected = expectedResult(matrixRow, role!, { kind, tier });
        expect([caller, tier, result]).toEqual([caller, tier, expected]);
      }
      const result = await admissionResult(endpoint, credentials.get(PASSWORD_DUE)!, tier);
      const expected = expectedResult(matrixRow, "admin", { passwordDue: true, tier });
      expect(["password due", tier, result]).toEqual(["password due", tier, expected]);
    }
  });

  const changingEndpoints = declaredEndpoints.filter(
    ({ method, access, credential }) => method !== "GET" && access !== "open" && credential !== "programToken",
  );
  test.each(changingEndpoints)("$id accepts a session only from the service's own pages", async (endpoint) => {
    const { headers, authenticated } = credentials.get("the session of an admin")!;
    const { "Sec-Fetch-Site": _, ...cookie } = headers;
    const resultWith = (siteHeaders: Record<string, string>) =>
      admissionResult(endpoint, { headers: { ...cookie, ...siteHeaders }, authenticated }, "pro");
    for (const otherSite of [
      {},
      { "Sec-Fetch-Site": "cross-site" },
      { "Sec-Fetch-Site": "same-site" },
      { "Sec-Fetch-Site": "none" },
      { "Sec-Fetch-Site": "cross-site", Origin: ORIGIN },
      { Origin: "https://elsewhere.example" },
      { Origin: "null" },
    ] as Record<string, string>[]) {
      expect([otherSite, await resultWith(otherSite)]).toEqual([otherSite, "crossSite"]);
    }
    for (const ownPage of [{ "Sec-Fetch-Site": "same-origin" }, { Origin: ORIGIN }] as Record<string, string>[]) {
      expect([ownPage, await resultWith(ownPage)]).toEqual([ownPage, "admitted"]);
    }
  });
});
