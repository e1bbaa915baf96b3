import { randomUUID } from "node:crypto";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { RULE_PREFIX, RULES, RuleSecretRows, Rules, SECRET_PREFIX, secretName } from "../../shared/alerts/rule.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { keyEnd } from "../../shared/platform/storage/keys.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { secretReference } from "../../shared/secrets/stored-secrets.ts";
import { CONFIGURATION_PREFIX, SYNC } from "../../shared/sync/record.ts";
import { licence } from "../support/licence.ts";
import { IS_CAMPAIGN, LONG_MS, SEED } from "../support/sampling.ts";
import { type Answer, Service } from "../support/service.ts";
import type { Fault, FaultedRequest } from "../support/table-proxy.ts";
import { makeToken } from "../support/users.ts";
import { APPLICATION, type Change, type ChangingEndpoint, changingEndpoints, LEFT_OUT, SECRET } from "./endpoints.ts";

// Every endpoint that changes something gets faults at its storage writes and key vault calls. The status, the state, the key
// vault and the audit log must then be consistent. The suite tests one write of each endpoint with one fault, and a storage
// outage from one of its last two writes on. The choice rotates, so that every fault is tested at some endpoints. A campaign
// tests every fault at every write.

/** Faults of a single write, after which the request must succeed. 500 and 503 after applying alternate. */
const FAULTS: readonly Fault[] = ["LostRequest", "LostAnswer", "CutAnswer", "ServerBusyApplied", "ServerBusy"];

/** All faults, or the one whose turn it is. */
const inTurn = <T>(all: readonly T[], turn: number): readonly T[] => (IS_CAMPAIGN ? all : [all[turn % all.length]!]);

const KEY_VAULT_FAULTS: readonly FaultAction[] = [
  { kind: "reset" },
  { kind: "loseAnswer" },
  { kind: "cutAnswer" },
  { kind: "failAfter", status: 500 },
  { kind: "fail", status: 503 },
];
const SERVICE_VAULT = "kv-lifecycle-service";

/** Writes to the audit log use the same code for all endpoints, so for most endpoints each kind of entry is tested at one. */
const isAudit = ({ path, body }: FaultedRequest) => /Audit(Entries|Index|Digests)/.test(path + body);
/** Requests that don't belong to the work: the host's own leases, and the creation of tables. */
const isOthers = ({ path }: FaultedRequest) => /^(LocalHost|Tables)/.test(path);
/** Writes of the call itself, not of a timer or of a message meanwhile. */
const isWrite = (request: FaultedRequest) =>
  request.method !== "GET" && request.by?.startsWith("call ") === true && !isOthers(request);

// A machine with ten parallel tests is slow.
vi.setConfig({ testTimeout: LONG_MS, hookTimeout: 300_000 });

let service: Service;
let admin: string;
let endpoints: ChangingEndpoint[];
const table: { endpoint: string; write: string; fault: string; status: number; state: string; audit: string }[] = [];

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
    },
    shortWaits: true,
  });
  const scan = await service.scan({ mode: "full" });
  expect(scan.status, JSON.stringify(scan)).toBe("completed");
  admin = await makeToken(service, "admin");
  await service.call("POST", "/api/automation/rotation/discover", { token: admin });
  await service.settled();
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  const matches = `/api/automation/rotation/apps/${appIdOf(APPLICATION)}/matches`;
  const indexed = async () => {
    const { body } = await service.call("GET", matches, { token: admin });
    expect(body).toMatchObject({ total: 1, coverage: [] });
  };
  await vi.waitFor(indexed, { timeout: 150_000, interval: 200 });
  endpoints = changingEndpoints(service, () => admin);
});
afterAll(async () => {
  await service?.stop();
  if (table.length === 0) return;
  const groups = new Map<string, number>();
  for (const { endpoint, write, fault, status, state, audit } of table) {
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
async function outcomesOf(change: Change, requestId: string): Promise<string[]> {
  const { body } = await service.call("GET", `/audit/entries?event_type=${change.event}&limit=20`, { token: admin });
  return (body.items as Entry[])
    .filter((entry) => (change.event === "alert.sent" ? true : entry.requestId === requestId))
    .filter((entry) => change.ofRequest?.(entry) ?? true)
    .map(({ outcome }) => outcome)
    .reverse();
}

/** The secret reference in a sync provider's rows, and the note of one that may be in the key vault. */
const Configured = entity("Sync", z.object({ secret: secretReference.optional() }));
const Note = entity("Sync", z.object({}));

/** Every secret in the key vault has a rule or a note in the table, and every rule that posts has its own secret. */
async function expectSecretsAgree(): Promise<void> {
  const tables = createTables({ connectionString: service.azurite.connectionString() });
  const known = new Set<string>();
  for await (const rows of tables.pages(RuleSecretRows, {
    partitionKey: RULES,
    from: SECRET_PREFIX,
    before: keyEnd(SECRET_PREFIX),
  }))
    for (const { ruleId } of rows) known.add(secretName(ruleId));
  const kept = new Set(service.cloud.control.items(SERVICE_VAULT, "secrets").map(({ name }) => name));
  for await (const rows of tables.pages(Rules, { partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX) }))
    for (const { ruleId, webhookVersion } of rows)
      if (webhookVersion !== undefined) expect(kept.has(secretName(ruleId)), `secret of ${ruleId}`).toBe(true);
  const prefixed = (prefix: string) => ({ partitionKey: SYNC, from: prefix, before: keyEnd(prefix) });
  for await (const rows of tables.pages(Configured, prefixed(CONFIGURATION_PREFIX)))
    for (const { secret } of rows) expect(kept.has(`sync-${secret!.id}`), "secret of a provider").toBe(true);
  for await (const rows of tables.pages(Note, prefixed("secret|")))
    for (const { rowKey } of rows) known.add(rowKey.replace("secret|", "sync-"));
  for (const name of kept) if (/^(alert-rule|sync)-/.test(name)) expect(known.has(name), `note of ${name}`).toBe(true);
}

interface Write {
  /** Description. */
  name: string;
  /** Its position among all writes of the request. */
  position: number;
  audit: boolean;
}

/**
 * Returns the writes of the request, without those to the audit log except at one endpoint. The first request ever may make
 * other writes.
 */
async function writesOf(endpoint: ChangingEndpoint): Promise<Write[]> {
  const change = await endpoint.prepare();
  const seen: Write[] = [];
  // A fault that never happens records every request.
  service.tables.fail(["ServerBusy"], (request) => {
    if (isWrite(request)) seen.push({ name: nameOf(request), position: seen.length, audit: isAudit(request) });
    return false;
  });
  const answer = await send(change, randomUUID());
  service.tables.heal();
  expect(answer.status, answer.text).toBe(change.status);
  expect(await change.state()).toBe("done");
  await change.settled?.();
  const writes = seen.slice(0, endpoint.writes ?? 20).filter(({ audit }) => !audit || endpoint.endpoint === auditedAt);
  expect(writes.length, "writes of its own").toBeGreaterThan(0);
  return writes;
}

function nameOf({ method, path, body }: FaultedRequest): string {
  if (path !== "$batch") return `${method} ${path.split("(")[0]}`;
  const verbs = [...body.matchAll(/^(POST|PUT|PATCH|DELETE) \S+\/(\w+)(?:\(| HTTP)/gm)];
  return `${verbs[0]?.[2]} ${verbs.map(([, verb]) => verb![0]).join("")}`;
}

/** Matches the write at this position from now on, once. */
function nthWrite(position: number): (request: FaultedRequest) => boolean {
  let count = 0;
  return (request) => isWrite(request) && count++ === position;
}

const names = [...new Set(changingEndpoints(undefined as never, () => "").map(({ endpoint }) => endpoint))];
const auditedAt = "POST /subscriptions";

test("every endpoint that changes something is tested here, or excluded for a reason", async () => {
  const { body } = await service.call("GET", "/openapi.json");
  const changing = Object.entries(body.paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== "get" && method !== "head")
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(changing.filter((name) => !names.includes(name) && LEFT_OUT[name] === undefined)).toEqual([]);
  expect(names.filter((name) => !changing.includes(name))).toEqual([]);
});

describe.each(names)("%s", (name) => {
  test("succeeds, and is returned and recorded as a success, whatever fault one write has", async () => {
    let met = 0;
    const turn = SEED + names.indexOf(name);
    for (const [variant, endpoint] of endpoints.filter((one) => one.endpoint === name).entries()) {
      const writes = await writesOf(endpoint);
      for (const write of name === auditedAt ? writes : inTurn(writes, turn + variant)) {
        const { position } = write;
        for (const fault of inTurn(endpoint.faults ?? FAULTS, turn + position)) {
          const applied = fault === "ServerBusyApplied" && position % 2 === 0 ? "InternalErrorApplied" : fault;
          const change = await endpoint.prepare();
          const requestId = randomUUID();
          service.tables.fail([applied], nthWrite(position));
          const { status, text } = await send(change, requestId);
          met += service.tables.heal() === 0 ? 1 : 0;
          const state = await change.state();
          const outcomes = await outcomesOf(change, requestId);
          table.push({ endpoint: name, write: write.name, fault: applied, status, state, audit: outcomes.join(", ") });
          const where = `${write.name} meets ${applied}: ${text}`;
          expect([status, state], where).toEqual([change.status, "done"]);
          expect(outcomes, where).toEqual(change.outcomes ?? ["intent", "success"]);
          await change.settled?.();
        }
      }
    }
    await expectSecretsAgree();
    expect(met, "faults that a write met").toBeGreaterThan(0);
  });

  test("returns no false result when storage fails from one write on, and a repeat completes it", async () => {
    let unclear = 0;
    const turn = SEED + names.indexOf(name);
    for (const [variant, endpoint] of endpoints.filter((one) => one.endpoint === name).entries()) {
      const own = (await writesOf(endpoint)).filter(({ audit }) => !audit);
      const writes = IS_CAMPAIGN ? own : own.slice(-2);
      const drawn = (turn + variant) % writes.length;
      // The audit log fails too, or it answers: then its entries must match the response.
      const logs = IS_CAMPAIGN ? [true, false] : [(turn + variant) % 2 === 0];
      const ways = [...writes.slice(drawn), ...writes.slice(0, drawn)].flatMap(({ name: write, position }) =>
        logs.flatMap((hasLog) =>
          (["ServerBusyApplied", "ServerBusy"] as const).map((first) => ({ write, position, first, hasLog })),
        ),
      );
      const open = unclear;
      for (const [at, { write, position, first, hasLog }] of ways.entries()) {
        // A write is tested both ways. Some leave nothing open; then the next is tested, too.
        if (!IS_CAMPAIGN && at % 2 === 0 && unclear > open) break;
        const change = await endpoint.prepare();
        const requestId = randomUUID();
        let gone = false;
        const starts = nthWrite(position);
        service.tables.fail([first], (request) => {
          gone ||= starts(request);
          return gone;
        });
        service.tables.fail(Array<Fault>(1000).fill("ServerBusy"), (request) => {
          return gone && !isOthers(request) && !(hasLog && isAudit(request));
        });
        const { status, text, headers } = await send(change, requestId);
        service.tables.heal();
        const state = await change.state();
        const outcomes = await outcomesOf(change, requestId);
        const fault = first === "ServerBusyApplied" ? "applied, then gone" : "gone";
        table.push({ endpoint: name, write, fault, status, state, audit: outcomes.join(", ") });
        const where = `${write}, ${fault}: ${status} ${state} ${outcomes}: ${text}`;
        if (status === 503) {
          unclear++;
          expect(headers.get("retry-after"), where).toMatch(/^\d+$/);
        } else expect([status, state], where).toEqual([change.status, "done"]);
        if (state === "done") expect(outcomes[0] ?? "intent", where).toMatch(/^(intent|success)$/);
        if (outcomes.includes("success")) expect(state, where).toBe("done");
        if (state !== "undone") for (const no of ["failure", "refused"]) expect(outcomes, where).not.toContain(no);
        const again = await send(change, randomUUID());
        expect(change.settles, `${where}; again: ${again.text}`).toContain(again.status);
        expect(await change.state(), `${where}; again: ${again.text}`).toBe("done");
        await change.settled?.();
      }
    }
    await expectSecretsAgree();
    expect(unclear, "answers that left the outcome open").toBeGreaterThan(0);
  });
});

describe("the key vault", () => {
  const cases: [endpoint: string, operation: string][] = [
    ["POST /alerts/rules", "keyvault.setSecret"],
    ["PUT /alerts/rules/{rule_id}", "keyvault.setSecret"],
    ["POST /alerts/rules/{rule_id}/rotate-secret", "keyvault.setSecret"],
    ["POST /api/automation/sync/providers/{provider}", "keyvault.setSecret"],
    ["DELETE /alerts/rules/{rule_id}", "keyvault.deleteSecret"],
  ];

  test.each(cases)(
    "has each fault, or two alternately, once under %s, and all states are consistent (%s)",
    async (name, operation) => {
      const endpoint = endpoints.find((one) => one.endpoint === name)!;
      const turn = cases.findIndex(([one]) => one === name);
      for (const action of IS_CAMPAIGN
        ? KEY_VAULT_FAULTS
        : [turn, turn + 1].map((at) => KEY_VAULT_FAULTS[at % KEY_VAULT_FAULTS.length]!)) {
        const change = await endpoint.prepare();
        const requestId = randomUUID();
        const fault = service.cloud.control.addFault({ match: { operation }, action, times: 1 });
        const { status, text } = await send(change, requestId);
        const happened = service.cloud.control.faults().find(({ id }) => id === fault)?.happened;
        service.cloud.control.clearFaults();
        const state = await change.state();
        const outcomes = await outcomesOf(change, requestId);
        table.push({ endpoint: name, write: operation, fault: action.kind, status, state, audit: outcomes.join(", ") });
        expect([status, state], `${action.kind}: ${text}`).toEqual([change.status, "done"]);
        expect(outcomes).toEqual(["intent", "success"]);
        expect(happened).toBe(1);
      }
      await expectSecretsAgree();
    },
  );

  test.each(cases)("fails for good under %s, and all states are consistent (%s)", async (name, operation) => {
    const endpoint = endpoints.find((one) => one.endpoint === name)!;
    const deletes = operation === "keyvault.deleteSecret";
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
      const outcomes = await outcomesOf(change, requestId);
      table.push({
        endpoint: name,
        write: operation,
        fault: `always ${action.kind}`,
        status,
        state,
        audit: outcomes.join(", "),
      });
      // A rule may be deleted before its secret: the secret is noted and deleted later. A rule is never written without its
      // secret.
      expect([status, state], `${action.kind}: ${text}`).toEqual(deletes ? [200, "done"] : [503, "undone"]);
      expect(outcomes).toEqual(["intent", deletes ? "success" : "failure"]);
      await expectSecretsAgree();
    }
  });
});
