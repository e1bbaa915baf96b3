import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { dryRunOf } from "../../functions/mcp/changes.ts";
import type { Services } from "../../functions/services.ts";
import { licence } from "../support/licence.ts";
import { connectMcp, createApiToken, type McpClient, sessionHeaders } from "../support/mcp.ts";
import { type Answer, Service } from "../support/service.ts";
import type { FaultedRequest } from "../support/table-proxy.ts";
import { createUsers, servicesOf } from "../support/users.ts";

// Tests of the changes that assistants propose, over HTTP on two hosts: what can be proposed, who decides, and that a change runs
// at most once, also if its process is killed.

const { endpoints } = await declarations();

let service: Service;
let services: Services;
let assistant: McpClient;
let token: string;
/** Headers of the administrator's browser. */
let browser: Record<string, string>;
beforeAll(async () => {
  service = await Service.start({ hosts: 2, tableProxy: true, env: { LICENSE_KEY: await licence() } });
  services = await servicesOf(service);
  token = await createApiToken(service, "admin");
  assistant = await connectMcp(service.url, token);
  browser = await sessionHeaders(service);
}, 180_000);
afterAll(async () => {
  await assistant?.client.close();
  await service?.stop();
});

/** Proposes a number of workers, which is different for each proposal. */
let workers = 1;
async function propose(client = assistant): Promise<{ id: string; workers: number }> {
  const body = { discoveryMaxWorkers: ++workers };
  const reason = `Scans with ${workers} workers`;
  const { json, isError, text } = await client.call("propose_change", {
    name: "updatePerformanceSettings",
    body,
    reason,
  });
  if (isError) throw new Error(text);
  return { id: json.data.proposal.id, workers };
}

const decide = (id: string, verb: "approve" | "reject", headers = browser, host = service.hosts[0]!): Promise<Answer> =>
  service.call("POST", `${host.url}/api/proposals/${id}/${verb}`, { headers });
const stateOf = async (id: string): Promise<string> =>
  (await service.call("GET", `/api/proposals/${id}`, { headers: browser })).body.state;
/** Returns the value of the setting. */
async function currentWorkers(): Promise<unknown> {
  const { body } = await service.call("GET", "/api/settings/performance", { headers: browser });
  return body.find(({ key }: { key: string }) => key === "discoveryMaxWorkers").value;
}
/** Returns how often a change of the setting to a value started, according to the audit log. */
async function startsOf(value: number): Promise<number> {
  const entries = await service.listAll("/audit/entries?event_type=settings.changed");
  return entries.filter((entry) => entry.outcome === "intent" && JSON.stringify(entry).includes(`:${value}}`)).length;
}

describe("a proposal", () => {
  test("changes nothing: it has the exact request and the answer of its dry run", async () => {
    const before = await currentWorkers();
    const proposed = await propose();
    const { body } = await service.call("GET", `/api/proposals/${proposed.id}`, { headers: browser });
    expect(body).toMatchObject({
      state: "pending",
      method: "PUT",
      path: "/api/settings/performance",
      body: { discoveryMaxWorkers: proposed.workers },
      reason: `Scans with ${proposed.workers} workers`,
      proposedBy: "admin",
      decidedBy: null,
    });
    expect(body.dryRun.length).toBeGreaterThan(1);
    expect(await currentWorkers()).toBe(before);
    expect(Date.parse(body.expiresAt) - Date.parse(body.createdAt)).toBe(24 * 3_600_000);
  });

  test("is possible only for requests with a dry run and without a write-only member", async () => {
    const { json } = await assistant.call("list_changes");
    const names: string[] = json.items.map(({ name }: { name: string }) => name);
    expect(names.sort()).toEqual(
      endpoints
        .filter((endpoint) => dryRunOf(endpoint) !== undefined)
        .map(({ name }) => name)
        .sort(),
    );
    expect(names).toContain("rotateCredential");
    for (const name of [
      "rotateAsset",
      "createUser",
      "createAlertRule",
      "approveProposal",
      "approveRequest",
      "createToken",
    ])
      expect([name, (await assistant.call("propose_change", { name, reason: "Please" })).json.code]).toEqual([
        name,
        "invalidRequest",
      ]);
    const { json: schema } = await assistant.call("list_changes", { name: "updatePerformanceSettings" });
    expect(Object.keys(schema.data.body.properties)).toContain("discoveryMaxWorkers");
  });

  test("is rejected if its dry run fails, or if it is a dry run itself", async () => {
    const name = "updatePerformanceSettings";
    for (const given of [
      { name, body: { discoveryMaxWorkers: 0 } },
      { name, body: { noSuchSetting: 1 } },
      { name, body: { discoveryMaxWorkers: 3 }, query: { preview: "true" } },
      { name: "purgeHistories", body: { dry_run: true } },
      { name, body: { discoveryMaxWorkers: 3 }, path_parameters: "none" },
    ])
      expect((await assistant.call("propose_change", { ...given, reason: "Try" })).json.code).toBe("invalidRequest");
  });

  test("needs the role of the request", async () => {
    const operator = await connectMcp(service.url, await createApiToken(service, "operator"));
    const { json } = await operator.call("propose_change", {
      name: "updatePerformanceSettings",
      body: { discoveryMaxWorkers: 3 },
      reason: "Try",
    });
    expect(json.code).toBe("forbidden");
    await operator.client.close();
  });

  test("is limited in number for each user", async () => {
    const user = { username: "eager", password: "a password of an eager one", role: "admin" } as const;
    await createUsers(service, [user], services);
    const signedIn = await service.signIn(user);
    const body = { name: "assistant", role: "admin", expiresInDays: 1 };
    const created = await service.call("POST", "/auth/tokens", { token: signedIn, body });
    const eager = await connectMcp(service.url, created.body.token);
    const codes = [];
    for (let index = 0; index < 21; index++) {
      const args = { name: "updateLoggingSettings", body: { logLevel: "INFO" }, reason: "Again" };
      codes.push((await eager.call("propose_change", args)).json.code);
    }
    expect(codes.slice(-2)).toEqual([undefined, "conflict"]);
    await eager.client.close();
  });
});

describe("a decision", () => {
  test("needs a browser session: no token decides, and no page of another site", async () => {
    const { id } = await propose();
    const signInToken = await service.signIn({ username: "admin", password: "correct-horse-battery" });
    for (const [who, options, code] of [
      ["an API token", { token }, "sessionOnly"],
      ["the token of a sign-in", { token: signInToken }, "sessionOnly"],
      ["an API token with a cookie", { token, headers: browser }, "sessionOnly"],
      ["another site", { headers: { ...browser, "Sec-Fetch-Site": "cross-site" } }, "crossSite"],
      ["nobody", {}, "unauthorized"],
    ] as const)
      for (const verb of ["approve", "reject"]) {
        const { body } = await service.call("POST", `/api/proposals/${id}/${verb}`, options);
        expect([who, verb, body.code]).toEqual([who, verb, code]);
      }
    expect(await stateOf(id)).toBe("pending");
  });

  test("runs exactly the proposed request, once", async () => {
    const proposed = await propose();
    const { status, body } = await decide(proposed.id, "approve");
    expect([status, body.state, body.status, body.decidedBy]).toEqual([200, "done", 200, "admin"]);
    expect(await currentWorkers()).toBe(proposed.workers);
    for (const verb of ["approve", "reject"] as const)
      expect((await decide(proposed.id, verb)).body.code).toBe("conflict");
    expect(await startsOf(proposed.workers)).toBe(1);
    const { body: entries } = await service.admin("GET", `/audit/entries?search=${proposed.id}&limit=100`);
    const types = entries.items.map((one: { eventType: string; outcome: string; details: { via?: string } }) => [
      one.eventType,
      one.outcome,
      one.details.via,
    ]);
    expect(types).toContainEqual(["proposal.created", "success", "mcp"]);
    expect(types).toContainEqual(["proposal.approved", "success", undefined]);
    expect(types).toContainEqual(["proposal.executed", "success", undefined]);
  });

  test("of a person without the role of the request leaves the proposal pending", async () => {
    const user = { username: "helper", password: "a password of a helper", role: "operator" } as const;
    await createUsers(service, [user], services);
    const { id } = await propose();
    const answer = await decide(id, "approve", await sessionHeaders(service, user));
    expect([answer.status, answer.body.code]).toEqual([403, "forbidden"]);
    expect(await stateOf(id)).toBe("pending");
  });

  test("rejects a proposal for good", async () => {
    const { id } = await propose();
    expect((await decide(id, "reject")).body.state).toBe("rejected");
    expect((await decide(id, "reject")).body.state).toBe("rejected");
    expect((await decide(id, "approve")).body.code).toBe("conflict");
  });

  test("that the request itself rejects ends the proposal with the problem", async () => {
    const path = "/api/settings/logging";
    expect((await service.admin("PUT", path, { logLevel: "DEBUG" })).status).toBe(200);
    const params = { category: "logging", key: "logLevel" };
    const args = { name: "removeOverride", path_parameters: params, reason: "The default is enough." };
    const { json, isError } = await assistant.call("propose_change", args);
    expect(isError, JSON.stringify(json)).toBe(false);
    expect((await service.admin("DELETE", `${path}/logLevel`)).status).toBe(200);
    const { body } = await decide(json.data.proposal.id, "approve");
    expect([body.state, body.status, body.code]).toEqual(["failed", 404, "notFound"]);
  });

  test("needs the confirmations that the request itself needs", async () => {
    const system = { actor: "system", requestId: "test" };
    await services.settings.update("features", { requireApproval: true }, system);
    const args = { name: "updateFeaturesSettings", body: { requireApproval: false }, reason: "Faster" };
    const { json } = await assistant.call("propose_change", args);
    const { body } = await decide(json.data.proposal.id, "approve");
    expect(body.code).toBe("approvalRequired");
    expect(await stateOf(json.data.proposal.id)).toBe("pending");
    await services.settings.update("features", { requireApproval: false }, system);
  });

  test("of two browsers at the same time runs the request once", async () => {
    for (let round = 0; round < 3; round++) {
      const proposed = await propose();
      const answers = await Promise.all(
        [0, 1, 0, 1].map((host) => decide(proposed.id, "approve", browser, service.hosts[host]!)),
      );
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
      expect(await startsOf(proposed.workers)).toBe(1);
    }
  });

  test("is not taken from a row that someone else wrote", async () => {
    const proposed = await propose();
    const table = TableClient.fromConnectionString(service.azurite.connectionString(), "Proposals", {
      allowInsecureConnection: true,
    });
    const row = await table.getEntity("proposals", proposed.id);
    const { etag: _, timestamp: __, ...columns } = row;
    expect((await decide(proposed.id, "approve")).body.state).toBe("done");
    // The row as it was before the approval, with its signature.
    await table.upsertEntity(columns as never, "Replace");
    await services.signedRows.check();
    const again = await decide(proposed.id, "approve");
    expect([200, 201]).not.toContain(again.status);
    expect(await startsOf(proposed.workers)).toBe(1);
    const changed = await propose();
    const other = await table.getEntity("proposals", changed.id);
    await table.updateEntity(
      { ...other, partitionKey: "proposals", rowKey: changed.id, body: '{"discoveryMaxWorkers":9}' } as never,
      "Merge",
    );
    expect((await decide(changed.id, "approve")).body.code).toBe("rowUnreadable");
  });
});

describe("a process that is killed during an approval", () => {
  test("runs the request at most once, whatever a person does next", async () => {
    // A first approval without a crash counts the writes.
    const counted = await propose();
    const isWrite = ({ method, by }: FaultedRequest) => method !== "GET" && by === "approval";
    service.clearTableRequests();
    await decide(counted.id, "approve", { ...browser, "x-test-by": "approval" });
    const writes = service.tableRequests().filter(({ method, by }) => method !== "GET" && by === "approval").length;
    expect(writes).toBeGreaterThan(4);
    const states = new Set<string>();
    for (let crashAt = 1; crashAt <= writes; crashAt++)
      for (const applied of crashAt % 2 === 0 ? [true] : [false]) {
        const proposed = await propose();
        const doomed = await service.addHost();
        let seen = 0;
        const isFatal = (request: FaultedRequest) => isWrite(request) && ++seen === crashAt;
        service.tables.before(() => doomed.stop("SIGKILL"), isFatal);
        let lost = 0;
        if (!applied) service.tables.fail(["LostRequest"], (request) => isWrite(request) && ++lost === crashAt);
        await decide(proposed.id, "approve", { ...browser, "x-test-by": "approval" }, doomed).catch(() => undefined);
        service.hosts.splice(service.hosts.indexOf(doomed), 1);
        service.tables.removeFaults();
        const state = await stateOf(proposed.id);
        states.add(state);
        const starts = await startsOf(proposed.workers);
        const again = await decide(proposed.id, "approve");
        // Only a proposal that was not started can be approved again.
        expect([crashAt, state, again.status]).toEqual([crashAt, state, state === "pending" ? 200 : 409]);
        expect([crashAt, await startsOf(proposed.workers)]).toEqual([crashAt, state === "pending" ? 1 : starts]);
        expect(starts).toBeLessThanOrEqual(state === "pending" ? 0 : 1);
      }
    expect([...states]).toEqual(expect.arrayContaining(["pending", "started"]));
  }, 300_000);
});
