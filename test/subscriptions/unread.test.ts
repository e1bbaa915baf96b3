import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { pdfText } from "../support/pdf-text.ts";
import { ADMIN, Service } from "../support/service.ts";

// Tests of how subscriptions that a scan could not read are reported: in the scan, the lists, the alerts, the audit log and the
// report. The tests build on each other.

const [DEV, OPERATIONS, FINANCE] = ["a", "b", "c"].map((digit) => `${digit}1111111-1111-4111-8111-111111111111`) as [
  string,
  string,
  string,
];
const subscription = (name: string, id: string) => ({
  name,
  id,
  vaults: [{ name: `kv-${name.split(" ")[1]!.toLowerCase()}`, secrets: [{ name: "db", expiresInDays: 300 }] }],
});
const company: Company = {
  subscriptions: [
    subscription("Acme Development", DEV),
    subscription("Acme Operations", OPERATIONS),
    subscription("Acme Finance", FINANCE),
  ],
};
const ROLE = "the custom role Credential Lifecycle Inventory Reader on the subscription";

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, shortWaits: true });
});
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.clearFaults());

const deny = (operation: string, subscription?: string) =>
  service.cloud.control.addFault({
    match: { operation, ...(subscription !== undefined && { subscription }) },
    action: { kind: "deny" },
  });
const scan = (request: object = {}) => service.scan({ mode: "force", ...request });
const subscriptions = async (query = "") => {
  const { status, body, text } = await service.admin("GET", `/subscriptions?${query}`);
  expect(status, text).toBe(200);
  return body;
};
/** Returns the text of the compliance report (PDF). */
async function readReport(): Promise<string> {
  const token = await service.signIn(ADMIN);
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(`${service.url}/compliance/frameworks/soc-2/pdf`, { headers });
  expect(response.status).toBe(200);
  return await pdfText(new Uint8Array(await response.arrayBuffer()));
}
const namesOf = async (query: string) => (await subscriptions(query)).items.map(({ name }: { name: string }) => name);

test("the list is empty and has no last scan before the first scan", async () => {
  expect(await subscriptions()).toMatchObject({ total: 0, lastScan: null, lastFailure: null });
});

test("a subscription that can't be read is reported first, with the reason and the missing role", async () => {
  const rule = { name: "Scans", alertType: "scanFailure", recipients: ["on-call@acme.example"] };
  expect((await service.admin("POST", "/alerts/rules", rule)).status).toBe(201);
  deny("arm.listVaults", FINANCE);
  service.cloud.control.addFault({ match: { vault: "kv-development" }, action: { kind: "deny" } });
  const endedScan = await scan();
  const financeLabel = `Acme Finance (${FINANCE})`;
  expect(endedScan).toMatchObject({ status: "partial", failure: null });

  const { scan: summary } = (await service.admin("GET", `/api/assets/discovery/scan/${endedScan.scanId}/results`)).body;
  for (const { subscriptionOutcomes } of [endedScan, summary]) {
    expect(subscriptionOutcomes).toMatchObject([
      { name: "Acme Finance", failure: { code: "accessDenied", remedy: expect.stringContaining(ROLE) } },
      { name: "Acme Development", failure: null },
      { name: "Acme Operations", failure: null },
    ]);
  }
  const line = service.hosts[0]!.lines.findLast((each) => each.includes("A scan is over"))!;
  expect(JSON.parse(line.slice(line.indexOf("{")))).toMatchObject({
    scanId: endedScan.scanId,
    status: "partial",
    subscriptionsFailed: 1,
    unreadSubscriptions: [financeLabel],
    vaultsFailed: 1,
  });
  const [entry] = await service.listAll("/audit/entries?event_type=scan.finished");
  expect(entry!.details).toMatchObject({ subscriptionsFailed: 1, unreadSubscriptions: [financeLabel] });

  expect((await service.admin("POST", "/alerts/preview", rule)).body.items).toMatchObject([
    { id: `subscription:${FINANCE}` },
    { id: "vault:kv-development" },
  ]);
  await fetch(`${service.url}/__host/timers/evaluateAlerts`, { method: "POST" });
  await vi.waitUntil(() => service.cloud.control.mails().length > 0, { timeout: 150_000, interval: 100 });
  const { subject, plainText: text = "" } = service.cloud.control.mails()[0]!;
  expect(subject).toBe("1 subscription and 1 vault can't be read; first Subscription Acme Finance");
  expect(text).toContain(`Scope: subscription ${financeLabel}`);
  const failureOf = (name: string) => text.indexOf(`${name} can't be read\n  `);
  expect(failureOf("Subscription Acme Finance")).toBeGreaterThan(-1);
  expect(failureOf("Subscription Acme Finance")).toBeLessThan(failureOf("Vault kv-development"));
  expect(text).toContain(ROLE);
});

test("the filter unread=true returns the subscriptions that were not read, with failures first", async () => {
  expect(await subscriptions("unread=true")).toMatchObject({
    items: [{ subscriptionId: FINANCE, name: "Acme Finance", lastFailure: { code: "accessDenied" } }],
    total: 1,
    lastScan: { status: "partial" },
    lastFailure: null,
  });
  const addedId = "d1111111-1111-4111-8111-111111111111";
  expect((await service.admin("POST", "/subscriptions", { subscriptionId: addedId, name: "Acme Early" })).status).toBe(
    201,
  );
  expect(await namesOf("unread=true")).toEqual(["Acme Finance", "Acme Early"]);
  expect((await subscriptions("unread=true")).items[1]).toMatchObject({ lastScan: null, lastFailure: null });
  const firstPage = await subscriptions("unread=true&limit=1");
  expect(await namesOf(`unread=true&limit=1&cursor=${firstPage.nextCursor}`)).toEqual(["Acme Early"]);
  expect(await namesOf("unread=false")).toEqual(["Acme Development", "Acme Operations"]);
  expect((await service.admin("GET", "/subscriptions?unread=maybe")).status).toBe(400);
  expect((await service.admin("DELETE", `/subscriptions/${addedId}`)).status).toBe(200);

  expect(await readReport()).toContain("The last scan did not read 1 subscription: Acme Finance.");

  expect((await scan()).status).toBe("completed");
  // "Not read" is the label of the row that names unread subscriptions.
  expect(await readReport()).not.toContain("Not read");
  expect(await subscriptions("unread=true")).toMatchObject({ items: [], lastScan: { status: "completed" } });
});

test("an unreadable list of subscriptions is reported until a scan can read it", async () => {
  deny("arm.listSubscriptions");
  const failed = await scan();
  expect(failed).toMatchObject({ status: "failed", failure: { code: "accessDenied" } });
  const expectedFailure = {
    lastScan: { scanId: failed.scanId, status: "failed" },
    lastFailure: { code: "accessDenied", remedy: expect.stringContaining(ROLE) },
  };
  expect(await subscriptions("unread=true")).toMatchObject({ items: [], ...expectedFailure });
  expect(await readReport()).toContain("The last scan could not read the list of subscriptions.");
  // A scan of one subscription does not read the list, so the failure remains.
  expect((await scan({ subscriptions: [DEV] })).status).toBe("completed");
  expect(await subscriptions("unread=true")).toMatchObject({ items: [], ...expectedFailure });
  service.cloud.control.clearFaults();
  const { scanId } = await scan();
  expect(await subscriptions()).toMatchObject({
    total: 3,
    lastScan: { scanId, status: "completed" },
    lastFailure: null,
  });
});

test("a scan that read nothing names the subscriptions that it could not read", async () => {
  deny("arm.listVaults");
  const { status, failure } = await scan();
  expect(status).toBe("failed");
  expect(failure).toMatchObject({ code: "accessDenied", remedy: expect.stringContaining(ROLE) });
  expect(failure.message).toContain("3 of 3 subscriptions could not be read: ");
  for (const name of ["Acme Development", "Acme Operations", "Acme Finance"]) expect(failure.message).toContain(name);
  expect((await namesOf("unread=true")).sort()).toEqual(["Acme Development", "Acme Finance", "Acme Operations"]);
});
