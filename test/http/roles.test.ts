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
import { HERE, type Instance, useDeployments } from "../access/instances.ts";
import { recordingLog, testConfig } from "../azure/services.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

const { endpoints } = await declarations();

/** Calls every endpoint as every caller, through the checks before the endpoints, and compares with the two pages. */
const PAGE = "docs/credentials.md";
const MATRIX = "docs/roles-matrix.md";
const table = tableUnder(MATRIX, "## Endpoints");
const callers = tableUnder(PAGE, "## Callers");
const idOf = ({ method, route }: { method: string; route: string }) => `${method} /${route}`;

const PASSWORD = "a password of their own";
const DAYS = { name: "one", expiresInDays: 30 };
const ORIGIN = "https://service.example";

const nextDeployment = useDeployments(1);
let cloud: Cloud;
let instance: Instance;
/** Callers by their names in the page: the credential they send, and the actor that the service finds. */
const sent = new Map<string, { headers: Record<string, string>; found: Actor | Problem | undefined }>();

beforeAll(async () => {
  const none = { BOOTSTRAP_ADMIN_USERNAME: undefined, BOOTSTRAP_ADMIN_PASSWORD: undefined };
  instance = nextDeployment().start({ config: none });
  const { access } = instance;
  const create = (username: string, role: Role) => access.users.create({ username, password: PASSWORD, role }, HERE);
  const signIn = async (username: string) => (await access.signIn({ username, password: PASSWORD }, HERE)).access_token;
  const apiTokenOf = async (owner: Actor, role: Role) =>
    (await access.apiTokens.create(owner, { ...DAYS, name: role, role }, HERE)).token;
  const bearer = async (who: string, token: string) => {
    const found = await access.authenticate({ kind: "bearer", token });
    sent.set(who, { headers: { Authorization: `Bearer ${token}` }, found });
    return found as Actor;
  };

  sent.set("no credential", { headers: {}, found: undefined });
  for (const role of ROLES) {
    const article = /^[ao]/.test(role) ? "an" : "a";
    await create(role, role);
    const actor = await bearer(`the token of ${article} ${role}`, await signIn(role));
    const { cookie } = await access.signInToSession({ username: role, password: PASSWORD }, HERE, undefined);
    const headers = { Cookie: `${SESSION_COOKIE}=${cookie.value}`, "Sec-Fetch-Site": "same-origin" };
    const credential: Credential = { kind: "session", cookie: cookie.value };
    sent.set(`the session of ${article} ${role}`, { headers, found: await access.authenticate(credential) });
    if (role !== "admin") continue;
    for (const given of ROLES) {
      await bearer(`an administrator's API token with the role ${given}`, await apiTokenOf(actor, given));
    }
  }
  for (const [who, from, to] of [
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
    await access.users.update(owner.username, { role: to }, undefined, HERE);
    await bearer(who, token);
  }
  await create("ended", "admin");
  const ended = await signIn("ended");
  await access.users.remove("ended", undefined, HERE);
  await bearer("an expired, revoked or invalid credential", ended);
  await create("due", "admin");
  await access.users.update("due", { password: `${PASSWORD} now` }, undefined, HERE);
  const { access_token } = await access.signIn({ username: "due", password: `${PASSWORD} now` }, HERE);
  await bearer("due", access_token);
  cloud = await startCloud({ company: "small", keys: CLOUD_KEYS });
  const config = testConfig(cloud.environment);
  const entra = createEntraTokens({ config, clock: systemClock, log: recordingLog() });
  for (const { caller: who } of callers.filter((one) => one.caller!.startsWith("an Entra access token"))) {
    const roles = who!.match(/Lifecycle\.\w+/g) ?? [];
    const token = await cloud.control.apiToken({ claims: { roles } });
    sent.set(who!, { headers: { Authorization: `Bearer ${token}` }, found: await entra.authenticate(token) });
  }
});
afterAll(async () => {
  await cloud?.stop();
});

const counted = { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
const limiter = { take: async () => counted, cleanUp: async () => {} };

/** Expected result: a problem's code, or `in` for success. */
async function answer(
  endpoint: (typeof endpoints)[number],
  { headers, found }: { headers: Record<string, string>; found: Actor | Problem | undefined },
  tier: Tier,
): Promise<string> {
  const gate: Gate = {
    authenticate: async () => found ?? new Problem("internal", "Nobody sent anything."),
    tier: async () => tier,
    recordRejection: async () => {},
    limiter,
    signInLimiter: limiter,
    pace: { waitForSlot: async () => {} },
    translate: () => undefined,
  };
  const arrival: UnauthenticatedRequest = {
    headers: new Headers(headers),
    address: "192.0.2.1",
    requestId: "1",
    origin: ORIGIN,
  };
  return await admit(endpoint, arrival, gate, {}).then(
    () => "in",
    (problem: Problem) => problem.code,
  );
}

type Line = Record<string, string>;

/** The reasons as docs list them, in this order. */
function expected(line: Line, role: string, { program = false, due = false, tier = "pro" as Tier }): string {
  const says = (column: string) => line[column] === "yes";
  if (role === "nobody" && !says("nobody")) return "unauthorized";
  if (role === "denied" && !says("nobody")) return "forbidden";
  if (due && !says("password due")) return "passwordChangeRequired";
  if (!says(role === "denied" ? "nobody" : role)) return "forbidden";
  if (program && !says("programs")) return "interactiveOnly";
  return tier === "core" && !says("without license") ? "licenseRequired" : "in";
}

const declared = endpoints.map((endpoint) => ({ ...endpoint, id: idOf(endpoint) }));

test(`every endpoint has a row in ${MATRIX}: npm run roles-page writes it`, () => {
  expect(table.map((line) => line.endpoint).sort()).toEqual(declared.map(({ id }) => id).sort());
  for (const { endpoint: _, ...cells } of table)
    for (const cell of Object.values(cells)) expect(cell).toMatch(/^(yes|–)$/);
});

test(`every role in ${PAGE} was tested and matches`, () => {
  expect(callers.map((line) => line.caller!).filter((who) => !sent.has(who))).toEqual([]);
  for (const { caller: who, role, program } of callers) {
    const { found } = sent.get(who!)!;
    const actor = found === undefined || found instanceof Problem ? undefined : found;
    const counts = found instanceof Problem && found.code === "forbidden" ? "denied" : (actor?.role ?? "nobody");
    expect([who, counts]).toEqual([who, role]);
    const isProgram =
      counts === "denied" || actor?.credential.kind === "apiToken" || actor?.credential.kind === "entra";
    expect([who, isProgram ? "yes" : "–"]).toEqual([who, program]);
  }
});

describe("who may call", () => {
  test.each(declared)("$id", async (endpoint) => {
    const line = table.find((one) => one.endpoint === endpoint.id);
    if (!line) throw new Error(`${MATRIX} has no line for ${endpoint.id}. Run npm run roles-page.`);
    for (const tier of ["pro", "core"] as const) {
      for (const { caller: who, role, program } of callers) {
        const reported = await answer(endpoint, sent.get(who!)!, tier);
        const wanted = expected(line, role!, { program: program === "yes", tier });
        expect([who, tier, reported]).toEqual([who, tier, wanted]);
      }
      const due = await answer(endpoint, sent.get("due")!, tier);
      expect(["password due", tier, due]).toEqual(["password due", tier, expected(line, "admin", { due: true, tier })]);
    }
  });

  const changes = declared.filter(({ method, access }) => method !== "GET" && access !== "open");
  test.each(changes)("$id accepts a session only from the service's own pages", async (endpoint) => {
    const { headers, found } = sent.get("the session of an admin")!;
    const { "Sec-Fetch-Site": _, ...cookie } = headers;
    const reported = (more: Record<string, string>) =>
      answer(endpoint, { headers: { ...cookie, ...more }, found }, "pro");
    for (const refused of [
      {},
      { "Sec-Fetch-Site": "cross-site" },
      { "Sec-Fetch-Site": "same-site" },
      { "Sec-Fetch-Site": "none" },
      { "Sec-Fetch-Site": "cross-site", Origin: ORIGIN },
      { Origin: "https://elsewhere.example" },
      { Origin: "null" },
    ] as Record<string, string>[]) {
      expect([refused, await reported(refused)]).toEqual([refused, "crossSite"]);
    }
    for (const taken of [{ "Sec-Fetch-Site": "same-origin" }, { Origin: ORIGIN }] as Record<string, string>[]) {
      expect([taken, await reported(taken)]).toEqual([taken, "in"]);
    }
  });
});
