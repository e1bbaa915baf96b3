import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { MAX_ANSWER_BYTES } from "../../functions/mcp/answer.ts";
import { dryRunOf } from "../../functions/mcp/changes.ts";
import type { Services } from "../../functions/services.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { insert } from "../../shared/platform/storage/tables.ts";
import { PROPOSALS, type ProposalRecord, Proposals } from "../../shared/proposals/proposal.ts";
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
  return entries.filter(({ outcome, after }) => outcome === "intent" && after?.discoveryMaxWorkers?.value === value)
    .length;
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

  test("shows the whole answer of its dry run, or is refused", async () => {
    await setOwners(90, "x".repeat(250));
    const proposed = await proposeOwners(["new-owner"]);
    // More than fits into the answer of a tool.
    expect(JSON.stringify(proposed).length).toBeLessThan(MAX_ANSWER_BYTES + 2000);
    const { body } = await service.call("GET", `/api/proposals/${proposed.id}`, { headers: browser });
    expect(JSON.stringify(body.dryRun).length).toBeGreaterThan(MAX_ANSWER_BYTES);
    expect(body.dryRun.items).toHaveLength(90);
    await setOwners(100, '"'.repeat(250));
    const args = { name: "replaceAlertOwners", body: { owners: [] }, reason: "Clean up" };
    const { json } = await assistant.call("propose_change", args);
    expect([json.code, json.detail]).toEqual(["invalidRequest", expect.stringContaining("A person can check at most")]);
  });

  test("that is repeated returns the one that waits, unless its dry run changed", async () => {
    await setOwners(1);
    const first = await proposeOwners(["same-owner"]);
    expect((await proposeOwners(["same-owner"])).id).toBe(first.id);
    expect((await proposeOwners(["another-owner"])).id).not.toBe(first.id);
    await setOwners(2);
    expect((await proposeOwners(["same-owner"])).id).not.toBe(first.id);
    const rejected = await proposeOwners(["rejected-owner"]);
    await decide(rejected.id, "reject");
    expect((await proposeOwners(["rejected-owner"])).id).not.toBe(rejected.id);
  });

  test("is limited in number for each user", async () => {
    const eager = await connectUser("eager");
    const codes = [];
    for (let index = 0; index < 21; index++) codes.push((await proposeDays(eager, index)).json.code);
    expect(codes.slice(-2)).toEqual([undefined, "conflict"]);
    for (const { id, proposedBy } of await listProposals("?state=pending"))
      if (proposedBy === "eager") await decide(id, "reject");
    for (let index = 21; index < 51; index++) {
      const { json } = await proposeDays(eager, index);
      codes.push(json.code);
      if (json.code === undefined) await decide(json.data.proposal.id, "reject");
    }
    expect(codes.slice(21).every((code) => code === undefined)).toBe(true);
    expect((await proposeDays(eager, 51)).json.detail).toContain("in the last 24 hours");
    await eager.client.close();
  });
});

/** Replaces the list of owners as the administrator. */
async function setOwners(count: number, suffix = ""): Promise<void> {
  const owners = Array.from({ length: count }, (_, index) => ({
    owner: `${index}-${suffix}`,
    address: `owner-${index}@${"a".repeat(60)}.${"b".repeat(60)}.example`,
  }));
  const { status, text } = await service.admin("PUT", "/alerts/owners", { owners });
  if (status !== 200) throw new Error(text);
}

async function proposeOwners(names: string[]): Promise<{ id: string }> {
  const owners = names.map((owner) => ({ owner, address: "owner@acme.example" }));
  const args = { name: "replaceAlertOwners", body: { owners }, reason: "New owners" };
  const { json, isError, text } = await assistant.call("propose_change", args);
  if (isError) throw new Error(text);
  return json.data.proposal;
}

/** Creates a user with the role admin, and connects an assistant with an API token of the user. */
async function connectUser(username: string): Promise<McpClient & { tokenId: string }> {
  const user = { username, password: `a long password of ${username}`, role: "admin" } as const;
  await createUsers(service, [user], services);
  // Without a sign-in, because the number of sign-ins is limited.
  const now = new Date();
  const credential = { kind: "token", id: "test", since: now, expiresAt: now } as const;
  const wanted = { name: "assistant", role: "admin", expiresInDays: 1 } as const;
  const caller = { actor: username, requestId: "test" };
  const created = await services.access.apiTokens.create({ username, role: "admin", credential }, wanted, caller);
  return { ...(await connectMcp(service.url, created.token)), tokenId: created.id };
}

/** The setting of the proposals of users. */
const RETENTION = "scanRetentionDays";
/** Proposes a number of days, which makes a proposal different from others. */
const proposeDays = (client: McpClient, index: number) =>
  client.call("propose_change", {
    name: "updateRetentionSettings",
    body: { [RETENTION]: 400 + index },
    reason: "Keep it longer",
  });

/** Returns all proposals, page by page. */
async function listProposals(query = ""): Promise<{ id: string; proposedBy: string }[]> {
  return await service.listAll(`/api/proposals${query}`);
}

describe("a decision", () => {
  test("is refused if the dry run returns something else than the proposal shows", async () => {
    await setOwners(1);
    const proposed = await proposeOwners(["new-owner"]);
    await setOwners(2);
    const answer = await decide(proposed.id, "approve");
    expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
    expect(answer.body.detail).toContain("something changed since");
    expect((await service.admin("GET", "/alerts/owners")).body.items).toHaveLength(2);
    const { body } = await service.call("GET", `/api/proposals/${proposed.id}`, { headers: browser });
    expect([body.state, body.detail]).toEqual(["expired", answer.body.detail]);
    const again = await proposeOwners(["new-owner"]);
    expect((await decide(again.id, "approve")).body.state).toBe("done");
    expect((await service.admin("GET", "/alerts/owners")).body.items[0].owner).toBe("new-owner");
  });

  test("is refused if the proposer is disabled, deleted, demoted, or revoked the token", async () => {
    const losses: [string, (tokenId: string, name: string) => Promise<Answer>][] = [
      ["disabled", (_, name) => service.admin("PUT", `/auth/users/${name}`, { state: "disabled" })],
      ["deleted", (_, name) => service.admin("DELETE", `/auth/users/${name}`)],
      ["demoted", (_, name) => service.admin("PUT", `/auth/users/${name}`, { role: "operator" })],
      ["revoked", (tokenId) => service.admin("DELETE", `/auth/tokens/${tokenId}`)],
    ];
    for (const [index, [name, lose]] of losses.entries()) {
      const { client, tokenId, call } = await connectUser(name);
      const { json } = await proposeDays({ client, call }, index);
      const { id } = json.data.proposal;
      await client.close();
      expect([name, (await lose(tokenId, name)).status < 300]).toEqual([name, true]);
      if (name === "deleted") await (await connectUser(name)).client.close();
      const { status, body } = await decide(id, "approve");
      expect([name, status, body.code]).toEqual([name, 409, "conflict"]);
      expect([name, body.detail]).toEqual([name, expect.stringContaining("was disabled, deleted")]);
      expect([name, await stateOf(id)]).toEqual([name, "expired"]);
    }
  });

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

describe("many proposals", () => {
  /** Stores proposals as the service does, without their dry runs. */
  async function plant(count: number, change: Partial<ProposalRecord> = {}): Promise<string[]> {
    const now = Date.now();
    const record: ProposalRecord = {
      state: "rejected",
      endpoint: "removeAllOverrides",
      summary: "Remove all overrides",
      method: "DELETE",
      path: "/api/settings/all",
      params: {},
      query: {},
      dryRun: "{}",
      reason: "None",
      proposedBy: "someone",
      proposerId: "someone",
      writeId: "planted",
      createdAt: new Date(now).toISOString(),
      expiresAt: new Date(now + 864e5).toISOString(),
      ...change,
    };
    const ids = Array.from({ length: count }, () => systemRandomness().ulid(new Date(now)));
    for (let first = 0; first < count; first += 50) {
      const operations = ids.slice(first, first + 50).map((id) => insert(Proposals, id, record));
      await services.tables.transaction(Proposals.table, PROPOSALS, operations);
    }
    return ids;
  }

  test("are listed on pages of a limited size, without a gap", async () => {
    const ids = await plant(70, { dryRun: JSON.stringify("x".repeat(60_000)) });
    const { body } = await service.admin("GET", "/api/proposals?state=rejected&limit=100");
    expect(body.items.length).toBeGreaterThan(50);
    expect(body.items.length).toBeLessThan(70);
    expect(body.nextCursor).not.toBe(null);
    const listed = (await listProposals("?state=rejected")).map(({ id }) => id);
    expect(new Set(listed).size).toBe(listed.length);
    expect(listed).toEqual(expect.arrayContaining(ids));
  });

  test("are deleted a week after they expire", async () => {
    const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString();
    const [old] = await plant(1, { expiresAt: daysAgo(8) });
    const [newer] = await plant(1, { expiresAt: daysAgo(6) });
    await fetch(`${service.url}/admin/functions/clearExpiredRows`, { method: "POST", body: "{}" });
    await expect
      .poll(async () => (await service.admin("GET", `/api/proposals/${old}`)).status, { timeout: 30_000 })
      .toBe(404);
    expect(await stateOf(newer!)).toBe("rejected");
  });

  test("are limited for all users together: those that wait, and those that are stored", async () => {
    const client = await connectUser("last");
    const waiting = (await listProposals("?state=pending")).length;
    expect(waiting).toBeLessThan(99);
    const ids = await plant(99 - waiting, { state: "pending" });
    expect((await proposeDays(client, 1)).json.code).toBe(undefined);
    expect((await proposeDays(client, 2)).json.detail).toContain("100 proposals of all users wait");
    for (const id of ids) await services.tables.remove(Proposals, PROPOSALS, id);
    const stored = (await listProposals()).length;
    await plant(999 - stored);
    expect((await proposeDays(client, 3)).json.code).toBe(undefined);
    expect((await proposeDays(client, 4)).json.detail).toContain("keeps at most 1000 proposals");
    await client.client.close();
  });
});
