import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TABLE } from "../../shared/certificate-renewal/authority.ts";
import { POLICIES } from "../../shared/certificate-renewal/policy.ts";
import type { Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";
import { addAuthority, BASE, startIssue, startRenewalService, VAULT, waitForEnd } from "./renewal-service.ts";

/** What nobody may do with renewals of certificates, and what no row contains. Also the renewals that the service starts itself. */

const TRUST = `${VAULT}.certificate.trust`;

let service: Service;
let authorityId: string;
let table: TableClient;
beforeAll(async () => {
  service = await startRenewalService();
  authorityId = await addAuthority(service);
  await waitForEnd(service, await startIssue(service, authorityId, "trust", ["trust.acme.example"]));
  await service.scan();
  table = TableClient.fromConnectionString(service.azurite.connectionString(), TABLE, {
    allowInsecureConnection: true,
  });
}, 180_000);
afterAll(() => service?.stop());

async function rowsOf(): Promise<Record<string, unknown>[]> {
  const rows: Record<string, unknown>[] = [];
  for await (const row of table.listEntities()) rows.push(row);
  return rows;
}
const runTimer = async () => {
  const fired = await fetch(`${service.url}/__host/timers/runCertificateRenewals`, { method: "POST" });
  expect(await fired.json()).toMatchObject({ succeeded: true });
};
const policy = () => service.admin("PUT", `${BASE}/${TRUST}/policy`, { authorityId, automatic: true, keyType: "EC" });
const renewals = async () => (await service.admin("GET", `${BASE}/renewals?assetId=${TRUST}`)).body.items;

test("no row, log line or answer contains the key of the account", { timeout: 60_000 }, async () => {
  const { control } = service.cloud;
  const secrets = control.items("kv-lifecycle-service", "secrets").filter(({ name }) => name.startsWith("acme-"));
  expect(secrets.length).toBe(1);
  const key = control.secretValue("kv-lifecycle-service", secrets[0]!.name)!;
  expect(key).toContain("PRIVATE KEY");
  const middle = key.split("\n")[1]!.slice(10, 50);
  const { body } = await service.admin("GET", `${BASE}/authorities/${authorityId}`);
  const everything = JSON.stringify([await rowsOf(), service.hosts.map(({ lines }) => lines), body, await renewals()]);
  expect(everything).not.toContain(middle);
  expect(everything).not.toContain("PRIVATE KEY");
});

test("only administrators renew, issue, revoke and configure", { timeout: 60_000 }, async () => {
  const operator = { username: "operator", password: "an operator's password", role: "operator" as const };
  await createUsers(service, [operator]);
  const token = await service.signIn(operator);
  for (const [method, path, body] of [
    ["POST", `${BASE}/${TRUST}/renew`, {}],
    ["POST", `${BASE}/${TRUST}/revoke`, { version: "0".repeat(32), authorityId }],
    ["PUT", `${BASE}/${TRUST}/policy`, { authorityId }],
    ["DELETE", `${BASE}/${TRUST}/policy`, undefined],
    ["DELETE", `${BASE}/authorities/${authorityId}`, undefined],
  ] as const) {
    const answer = await service.call(method, path, { token, body });
    expect([path, answer.status, answer.body.code]).toEqual([path, 403, "forbidden"]);
  }
  expect((await service.call("GET", `${BASE}/authorities`, { token })).status).toBe(200);
});

test("the service renews a certificate in its window, once", { timeout: 180_000 }, async () => {
  expect((await policy()).status).toBe(200);
  await runTimer();
  expect((await renewals()).length).toBe(1);
  const start = new Date(Date.now() - 120_000).toISOString();
  service.cloud.control.acmeAuthority.suggest(VAULT, "trust", {
    start,
    end: new Date(Date.now() - 60_000).toISOString(),
  });
  // The service asks again only after the time that the authority named.
  const askAgain = async () => {
    for (const row of (await rowsOf()).filter(({ partitionKey }) => partitionKey === "schedules"))
      await table.updateEntity({ ...row, checkAgainAt: 0 } as never, "Replace");
  };
  await askAgain();
  // No scan finds the new version, so that by the inventory the certificate stays due.
  service.cloud.control.addFault({ match: { operation: "keyvault.listCertificates" }, action: { kind: "deny" } });
  await runTimer();
  await runTimer();
  const [renewal, ...earlier] = await renewals();
  expect([renewal.automatic, renewal.kind, earlier.length]).toEqual([true, "renew", 1]);
  expect(await waitForEnd(service, renewal.runId)).toMatchObject({ status: "completed" });
  await askAgain();
  await runTimer();
  expect((await renewals()).length).toBe(2);
  service.cloud.control.clearFaults();
  await service.scan();
});

test("a row of one certificate that can't be read does not stop the renewal of another", {
  timeout: 120_000,
}, async () => {
  const www = `${VAULT}.certificate.www`;
  const due = { authorityId: null, automatic: true, trigger: "lifetimeShare", lifetimeShare: 10 };
  expect((await service.admin("PUT", `${BASE}/${www}/policy`, due)).status).toBe(200);
  const schedule = (await rowsOf()).find(({ partitionKey }) => partitionKey === "schedules")!;
  await table.updateEntity({ ...schedule, checkAgainAt: "never" } as never, "Replace");
  await runTimer();
  const started = (await service.admin("GET", `${BASE}/renewals?assetId=${www}`)).body.items;
  expect(started.length).toBe(1);
  expect((await waitForEnd(service, started[0].runId)).status).toBe("completed");
  expect((await service.admin("DELETE", `${BASE}/${www}/policy`)).status).toBe(200);
  await table.updateEntity(schedule as never, "Replace");
});

test("a policy that another program changed starts no renewal, and saving it again repairs it", {
  timeout: 120_000,
}, async () => {
  const before = (await renewals()).length;
  const row = (await rowsOf()).find(({ partitionKey }) => partitionKey === POLICIES)!;
  await table.updateEntity({ ...row, lifetimeShare: 10 } as never, "Replace");
  await runTimer();
  const renew = await service.admin("POST", `${BASE}/${TRUST}/renew`);
  expect([renew.status, renew.body.code]).toEqual([503, "rowUnreadable"]);
  expect((await renewals()).length).toBe(before);
  expect((await policy()).status).toBe(200);
  expect((await service.admin("POST", `${BASE}/${TRUST}/renew`, { dryRun: true })).body.missing).toEqual([]);
});

test("a rate limit of the authority pauses it, and fails a renewal that would wait for hours", {
  timeout: 120_000,
}, async () => {
  service.cloud.control.acmeAuthority.server.rateLimit = { count: 1, periodSeconds: 86_400 };
  const limited = await startIssue(service, authorityId, "limited", ["trust.acme.example"]);
  const renewal = await waitForEnd(service, limited);
  expect(renewal).toMatchObject({ status: "failed", failure: { code: "rateLimited" } });
  const body = { vaultName: VAULT, name: "later", dnsNames: ["later.acme.example"], authorityId, dryRun: true };
  const plan = await service.admin("POST", BASE, body);
  expect(plan.body.missing[0]).toMatch(/^The budget of Stand-in is used until /);
});
