/*
 * Faults of storage and of the key vault during every endpoint that changes something. The response, the stored state, the key
 * vault and the audit log must agree afterwards. For each endpoint, one write has one fault, and one outage of storage starts
 * at one of its last two writes. Which write and which fault rotates with the seed. A campaign tests every fault at every
 * write.
 */
import { randomUUID } from "node:crypto";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { RULE_PREFIX, RULES, RuleSecretRows, Rules, SECRET_PREFIX, secretName } from "../../shared/alerts/rule.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { keyEnd } from "../../shared/platform/storage/keys.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { secretReference } from "../../shared/secrets/stored-secrets.ts";
import { CONFIGURATION_PREFIX, SYNC } from "../../shared/sync/record.ts";
import { useManagedIdentity } from "../azure/live-cloud.ts";
import { licence } from "../support/licence.ts";
import { IS_CAMPAIGN, LONG_MS, SEED } from "../support/sampling.ts";
import { type Answer, Service } from "../support/service.ts";
import type { Fault, FaultedRequest } from "../support/table-proxy.ts";
import { makeToken } from "../support/users.ts";
import type { Change, ChangingEndpoint } from "./changing-endpoint.ts";
import { changingEndpoints } from "./endpoints.ts";
import { APPLICATION, SECRET } from "./rotation-endpoints.ts";
import { UNTESTED_ENDPOINTS } from "./untested-endpoints.ts";

/** Faults of a single write. The service must retry, and the request must succeed. See test/support/table-proxy.ts. */
const FAULTS: readonly Fault[] = ["LostRequest", "LostAnswer", "CutAnswer", "ServerBusyApplied", "ServerBusy"];

/**
 * Returns all values in a campaign, otherwise the one with the number `turn`. The turn depends on the seed and the endpoint, so
 * that other seeds test other values.
 */
const allOrNextInTurn = <T>(all: readonly T[], turn: number): readonly T[] =>
  IS_CAMPAIGN ? all : [all[turn % all.length]!];

const KEY_VAULT_FAULTS: readonly FaultAction[] = [
  { kind: "reset" },
  { kind: "loseAnswer" },
  { kind: "cutAnswer" },
  { kind: "failAfter", status: 500 },
  { kind: "fail", status: 503 },
];
const SERVICE_VAULT = "kv-lifecycle-service";

/**
 * Whether a request writes to the audit log. These writes share their code, so they are tested with one endpoint,
 * `AUDIT_TESTED_AT`.
 */
const isAuditWrite = ({ path, body }: FaultedRequest) => /Audit(Entries|Index|Digests)/.test(path + body);
/** Whether a request does not belong to the call: a lease of the host itself, or the creation of a table. */
const isUnrelated = ({ path }: FaultedRequest) => /^(LocalHost|Tables)/.test(path);
/** Whether a request is a write of the call itself, not of a timer or a message. */
const isWriteOfCall = (request: FaultedRequest) =>
  request.method !== "GET" && request.by?.startsWith("call ") === true && !isUnrelated(request);

// Other test files run at the same time and slow these tests down.
vi.setConfig({ testTimeout: LONG_MS, hookTimeout: 300_000 });

let service: Service;
let admin: string;
let endpoints: ChangingEndpoint[];
/** One result for each tested fault, printed at the end. */
const resultLines: { endpoint: string; write: string; fault: string; status: number; state: string; audit: string }[] =
  [];

beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company: {
      subscriptions: [
        {
          name: "One",
          vaults: [
            {
              name: "kv-one",
              certificates: [{ name: "www" }],
              secrets: [
                { name: "db", expiresInDays: 5 },
                {
                  name: SECRET,
                  value: secretValueOf(APPLICATION, "current"),
                  contentType: `outcomes:${appIdOf(APPLICATION)}:${keyIdOf(APPLICATION, "current")}`,
                },
              ],
            },
          ],
        },
      ],
      applications: [{ name: APPLICATION, secrets: [{ name: "current", expiresInDays: 90 }] }],
    },
    env: {
      TRUSTED_PROXY_HOPS: "2",
      ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
      LICENSE_KEY: await licence(),
      ENDPOINT_PRIVATE_RANGES: "127.0.0.0/8",
    },
    shortWaits: true,
  });
  // This process reads signed rows, whose keys are in the key vault of the service.
  await useManagedIdentity(service.cloud);
  const scan = await service.scan({ mode: "full" });
  expect(scan.status, JSON.stringify(scan)).toBe("completed");
  admin = await makeToken(service, "admin");
  await service.call("POST", "/api/automation/rotation/discover", { token: admin });
  await service.waitForEmptyQueues();
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  const matches = `/api/automation/rotation/apps/${appIdOf(APPLICATION)}/matches`;
  const expectMatchIsIndexed = async () => {
    const { body } = await service.call("GET", matches, { token: admin });
    expect(body).toMatchObject({ total: 1, coverage: [] });
  };
  await vi.waitFor(expectMatchIsIndexed, { timeout: 150_000, interval: 200 });
  endpoints = changingEndpoints(service, () => admin);
});
afterAll(async () => {
  await service?.stop();
  if (resultLines.length === 0) return;
  const groups = new Map<string, number>();
  for (const { endpoint, write, fault, status, state, audit } of resultLines) {
    const line = [endpoint.padEnd(58), write.padEnd(26), fault.padEnd(24), status, state.padEnd(6), audit].join("  ");
    groups.set(line, (groups.get(line) ?? 0) + 1);
  }
  console.log([...groups].map(([line, times]) => `${line}${times > 1 ? `  (${times} writes)` : ""}`).join("\n"));
});

interface Entry {
  eventType: string;
  outcome: string;
  requestId: string;
  details?: Record<string, unknown>;
  target?: { id: string };
}

const send = (change: Change, requestId: string): Promise<Answer> =>
  service.call(change.method, change.path, {
    token: change.path === "/auth/login" ? undefined : admin,
    ...change.options,
    headers: { "X-Request-Id": requestId, ...change.options?.headers },
  });

/** Returns the audit outcomes of a request, oldest first. */
async function readAuditOutcomes(change: Change, requestId: string): Promise<string[]> {
  const { body } = await service.call("GET", `/audit/entries?event_type=${change.event}&limit=20`, { token: admin });
  return (body.items as Entry[])
    .filter((entry) => (change.event === "alert.sent" ? true : entry.requestId === requestId))
    .filter((entry) => change.belongsToRequest?.(entry) ?? true)
    .map(({ outcome }) => outcome)
    .reverse();
}

/** Rows of sync providers with their secret reference, and notes: rows that name a secret which may be in the key vault. */
const ProviderConfigurations = entity("Sync", z.object({ secret: secretReference.optional() }));
const SecretNotes = entity("Sync", z.object({}));
/** The signed rules, read without the keys. */
const UnverifiedRules = entity(Rules.table, z.object({ ruleId: z.string(), webhookVersion: z.string().optional() }));

/**
 * Expects that each secret in the service's key vault belongs to a rule, a provider or a note in the tables. Also expects that
 * each webhook rule and each provider has its secret.
 */
async function expectSecretsAgree(): Promise<void> {
  const tables = createTables({ connectionString: service.azurite.connectionString() });
  const secretsInTables = new Set<string>();
  for await (const rows of tables.pages(RuleSecretRows, {
    partitionKey: RULES,
    from: SECRET_PREFIX,
    before: keyEnd(SECRET_PREFIX),
  }))
    for (const { ruleId } of rows) secretsInTables.add(secretName(ruleId));
  const secretsInKeyVault = new Set(service.cloud.control.items(SERVICE_VAULT, "secrets").map(({ name }) => name));
  const ruleRange = { partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX) };
  for await (const rows of tables.pages(UnverifiedRules, ruleRange))
    for (const { ruleId, webhookVersion } of rows)
      if (webhookVersion !== undefined)
        expect(secretsInKeyVault.has(secretName(ruleId)), `secret of ${ruleId}`).toBe(true);
  const prefixed = (prefix: string) => ({ partitionKey: SYNC, from: prefix, before: keyEnd(prefix) });
  for await (const rows of tables.pages(ProviderConfigurations, prefixed(CONFIGURATION_PREFIX)))
    for (const { secret } of rows)
      expect(secretsInKeyVault.has(`sync-${secret!.id}`), "secret of a provider").toBe(true);
  for await (const rows of tables.pages(SecretNotes, prefixed("secret|")))
    for (const { rowKey } of rows) secretsInTables.add(rowKey.replace("secret|", "sync-"));
  for (const name of secretsInKeyVault)
    if (/^(alert-rule|sync)-/.test(name)) expect(secretsInTables.has(name), `note of ${name}`).toBe(true);
}

interface Write {
  /** Description, such as `PUT Rules`. */
  name: string;
  /** Its position among all writes of the request. */
  position: number;
  audit: boolean;
}

const writesOfEndpoints = new Map<ChangingEndpoint, Write[]>();

/**
 * Sends the request once without faults and returns its writes. Writes to the audit log are included only for
 * `AUDIT_TESTED_AT`. Later calls return the same writes.
 */
async function recordWrites(endpoint: ChangingEndpoint): Promise<Write[]> {
  const known = writesOfEndpoints.get(endpoint);
  if (known) return known;
  const change = await endpoint.prepare();
  const recordedWrites: Write[] = [];
  let createsTable = false;
  // This fault never happens. Its predicate sees every request.
  service.tables.fail(["ServerBusy"], (request) => {
    createsTable ||= request.method === "POST" && request.path.startsWith("Tables");
    if (isWriteOfCall(request))
      recordedWrites.push({
        name: describeWrite(request),
        position: recordedWrites.length,
        audit: isAuditWrite(request),
      });
    return false;
  });
  const answer = await send(change, randomUUID());
  service.tables.removeFaults();
  expect(answer.status, answer.text).toBe(change.status);
  expect(await change.state()).toBe("done");
  await change.waitForBackgroundWork?.();
  // The first write to a missing table is sent again after the table was created. Later requests don't repeat it.
  if (createsTable) return await recordWrites(endpoint);
  const writes = recordedWrites
    .slice(0, endpoint.maxWrites ?? 20)
    .filter(({ audit }) => !audit || endpoint.endpoint === AUDIT_TESTED_AT);
  expect(writes.length, "writes of the call").toBeGreaterThan(0);
  writesOfEndpoints.set(endpoint, writes);
  return writes;
}

/** Describes a write. A transaction is described by its table and the first letter of each operation's verb: `Rules PPD`. */
function describeWrite({ method, path, body }: FaultedRequest): string {
  if (path !== "$batch") return `${method} ${path.split("(")[0]}`;
  const verbs = [...body.matchAll(/^(POST|PUT|PATCH|DELETE) \S+\/(\w+)(?:\(| HTTP)/gm)];
  return `${verbs[0]?.[2]} ${verbs.map(([, verb]) => verb![0]).join("")}`;
}

/** Returns a predicate that matches the write of the call at this position, counted from 0, once. */
function matchNthWrite(position: number): (request: FaultedRequest) => boolean {
  let count = 0;
  return (request) => isWriteOfCall(request) && count++ === position;
}

const endpointNames = [...new Set(changingEndpoints(undefined as never, () => "").map(({ endpoint }) => endpoint))];
const AUDIT_TESTED_AT = "POST /subscriptions";

// After a failed test, its retry records the writes again.
afterEach(({ task }) => {
  if (task.result?.state === "fail") writesOfEndpoints.clear();
});

test("every endpoint that is not a GET is tested here, or excluded with a reason", async () => {
  const { body } = await service.call("GET", "/openapi.json");
  const changing = Object.entries(body.paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== "get" && method !== "head")
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(changing.filter((name) => !endpointNames.includes(name) && UNTESTED_ENDPOINTS[name] === undefined)).toEqual(
    [],
  );
  expect(endpointNames.filter((name) => !changing.includes(name))).toEqual([]);
});

describe.each(endpointNames)("%s", (name) => {
  test("succeeds and is recorded as a success if one write has a fault", async () => {
    let happenedFaults = 0;
    const turn = SEED + endpointNames.indexOf(name);
    // An endpoint has several variants if its requests prepare or send different things.
    for (const [variant, endpoint] of endpoints.filter(({ endpoint }) => endpoint === name).entries()) {
      const writes = await recordWrites(endpoint);
      for (const write of name === AUDIT_TESTED_AT ? writes : allOrNextInTurn(writes, turn + variant)) {
        const { position } = write;
        for (const fault of allOrNextInTurn(endpoint.faults ?? FAULTS, turn + position)) {
          // Both faults mean a server error after the write was applied, with the status 503 or 500.
          const faultOfWrite = fault === "ServerBusyApplied" && position % 2 === 0 ? "InternalErrorApplied" : fault;
          const change = await endpoint.prepare();
          const requestId = randomUUID();
          service.tables.fail([faultOfWrite], matchNthWrite(position));
          const { status, text } = await send(change, requestId);
          happenedFaults += service.tables.removeFaults() === 0 ? 1 : 0;
          const state = await change.state();
          const outcomes = await readAuditOutcomes(change, requestId);
          resultLines.push({
            endpoint: name,
            write: write.name,
            fault: faultOfWrite,
            status,
            state,
            audit: outcomes.join(", "),
          });
          const context = `${write.name} with ${faultOfWrite}: ${text}`;
          expect([status, state], context).toEqual([change.status, "done"]);
          expect(outcomes, context).toEqual(change.outcomes ?? ["intent", "success"]);
          await change.waitForBackgroundWork?.();
        }
      }
    }
    await expectSecretsAgree();
    expect(happenedFaults, "faults that happened").toBeGreaterThan(0);
  });

  test("reports the correct outcome of a storage outage, and a repeat completes it", async () => {
    let unclearResponses = 0;
    const turn = SEED + endpointNames.indexOf(name);
    for (const [variant, endpoint] of endpoints.filter(({ endpoint }) => endpoint === name).entries()) {
      const writesOfEndpoint = (await recordWrites(endpoint)).filter(({ audit }) => !audit);
      const writes = IS_CAMPAIGN ? writesOfEndpoint : writesOfEndpoint.slice(-2);
      const firstWrite = (turn + variant) % writes.length;
      // Whether the audit log stays available during the outage.
      const auditLogChoices = IS_CAMPAIGN ? [true, false] : [(turn + variant) % 2 === 0];
      const outages = [...writes.slice(firstWrite), ...writes.slice(0, firstWrite)].flatMap(
        ({ name: write, position }) =>
          auditLogChoices.flatMap((isAuditLogAvailable) =>
            (["ServerBusyApplied", "ServerBusy"] as const).map((firstFault) => ({
              write,
              position,
              firstFault,
              isAuditLogAvailable,
            })),
          ),
      );
      const unclearBefore = unclearResponses;
      for (const [index, { write, position, firstFault, isAuditLogAvailable }] of outages.entries()) {
        // Both variants of a write are tested: the last request was applied or not. If no response was unclear, the next write
        // follows.
        if (!IS_CAMPAIGN && index % 2 === 0 && unclearResponses > unclearBefore) break;
        const change = await endpoint.prepare();
        const requestId = randomUUID();
        let isStorageDown = false;
        const startsHere = matchNthWrite(position);
        service.tables.fail([firstFault], (request) => {
          isStorageDown ||= startsHere(request);
          return isStorageDown;
        });
        service.tables.fail(Array<Fault>(1000).fill("ServerBusy"), (request) => {
          return isStorageDown && !isUnrelated(request) && !(isAuditLogAvailable && isAuditWrite(request));
        });
        const { status, text, headers } = await send(change, requestId);
        service.tables.removeFaults();
        const state = await change.state();
        const outcomes = await readAuditOutcomes(change, requestId);
        const fault = firstFault === "ServerBusyApplied" ? "applied, then outage" : "outage";
        resultLines.push({ endpoint: name, write, fault, status, state, audit: outcomes.join(", ") });
        const context = `${write}, ${fault}: ${status} ${state} ${outcomes}: ${text}`;
        if (status === 503) {
          unclearResponses++;
          expect(headers.get("retry-after"), context).toMatch(/^\d+$/);
        } else expect([status, state], context).toEqual([change.status, "done"]);
        // `intent` is recorded before the change. The entry with the result can be missing, but must not be a failure.
        if (state === "done") expect(outcomes[0] ?? "intent", context).toMatch(/^(intent|success)$/);
        if (outcomes.includes("success")) expect(state, context).toBe("done");
        if (state !== "undone")
          for (const unsuccessful of ["failure", "refused"]) expect(outcomes, context).not.toContain(unsuccessful);
        const repeated = await send(change, randomUUID());
        expect(change.allowedOnRepeat, `${context}; repeated: ${repeated.text}`).toContain(repeated.status);
        expect(await change.state(), `${context}; repeated: ${repeated.text}`).toBe("done");
        await change.waitForBackgroundWork?.();
      }
    }
    await expectSecretsAgree();
    expect(unclearResponses, "responses with an unknown outcome").toBeGreaterThan(0);
  });
});

describe("the key vault", () => {
  /** Endpoints that write to the service's key vault, with the operation. */
  const cases: [endpoint: string, operation: string][] = [
    ["POST /alerts/rules", "keyvault.setSecret"],
    ["PUT /alerts/rules/{rule_id}", "keyvault.setSecret"],
    ["POST /alerts/rules/{rule_id}/rotate-secret", "keyvault.setSecret"],
    ["POST /api/automation/sync/providers/{provider}", "keyvault.setSecret"],
    ["DELETE /alerts/rules/{rule_id}", "keyvault.deleteSecret"],
  ];

  test.each(cases)("fails once during %s (%s), and the request succeeds", async (name, operation) => {
    const endpoint = endpoints.find((candidate) => candidate.endpoint === name)!;
    const turn = cases.findIndex(([endpointName]) => endpointName === name);
    for (const action of IS_CAMPAIGN
      ? KEY_VAULT_FAULTS
      : [turn, turn + 1].map((index) => KEY_VAULT_FAULTS[index % KEY_VAULT_FAULTS.length]!)) {
      const change = await endpoint.prepare();
      const requestId = randomUUID();
      const fault = service.cloud.control.addFault({ match: { operation }, action, times: 1 });
      const { status, text } = await send(change, requestId);
      const happenedCount = service.cloud.control.faults().find(({ id }) => id === fault)?.happened;
      service.cloud.control.clearFaults();
      const state = await change.state();
      const outcomes = await readAuditOutcomes(change, requestId);
      resultLines.push({
        endpoint: name,
        write: operation,
        fault: action.kind,
        status,
        state,
        audit: outcomes.join(", "),
      });
      expect([status, state], `${action.kind}: ${text}`).toEqual([change.status, "done"]);
      expect(outcomes).toEqual(["intent", "success"]);
      expect(happenedCount).toBe(1);
    }
    await expectSecretsAgree();
  });

  test.each(cases)("keeps failing during %s (%s), and no secret is left without its rule", async (name, operation) => {
    const endpoint = endpoints.find((candidate) => candidate.endpoint === name)!;
    const isDeletion = operation === "keyvault.deleteSecret";
    for (const action of [
      { kind: "fail", status: 500 },
      { kind: "failAfter", status: 500 },
      { kind: "deny" },
    ] as const) {
      const change = await endpoint.prepare();
      const requestId = randomUUID();
      service.cloud.control.addFault({ match: { operation }, action });
      const { status, text } = await send(change, requestId);
      service.cloud.control.clearFaults();
      const state = await change.state();
      const outcomes = await readAuditOutcomes(change, requestId);
      resultLines.push({
        endpoint: name,
        write: operation,
        fault: `always ${action.kind}`,
        status,
        state,
        audit: outcomes.join(", "),
      });
      // A rule is deleted although its secret can't be deleted: a note keeps the secret's name for a later attempt. A rule is
      // never written without its secret.
      expect([status, state], `${action.kind}: ${text}`).toEqual(isDeletion ? [200, "done"] : [503, "undone"]);
      expect(outcomes).toEqual(["intent", isDeletion ? "success" : "failure"]);
      await expectSecretsAgree();
    }
  });
});
