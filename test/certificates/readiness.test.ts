// The readiness report over HTTP, and renewal windows that scans read from a certificate authority. The certificates have 6 to
// 398 days and are renewed on time, late and never, by each kind of renewer.
import { certificateCompany } from "simulated-cloud/company/certificate-company.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { parseCsv } from "../support/parse-csv.ts";
import { pdfText } from "../support/pdf-text.ts";
import { Service } from "../support/service.ts";

/** Lifetimes in days. The company has 70 certificates: one of each lifetime for each renewer and timing. */
const LIFETIMES_DAYS = [6, 47, 90, 200, 398];
/** The certificate whose version a consumer names. */
const PINNED = "acmebot-90-days-on-time";
const NOT_EXPORTABLE = "acmebot-200-days-on-time";

const app = (name: string, reference: string): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app,linux",
  identity: { system: true },
  properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
  settings: { CERTIFICATE: `@Microsoft.KeyVault(SecretUri=${reference})` },
});

/** The company with two consumers: one names a version, the other reads a private key that can't be exported. */
function companyWithConsumers(): Company {
  const [subscription] = certificateCompany.subscriptions;
  return {
    subscriptions: [
      {
        ...subscription!,
        vaults: subscription!.vaults!.map((vault) => ({
          ...vault,
          certificates: vault.certificates!.map((one) => ({ ...one, exportable: one.name !== NOT_EXPORTABLE })),
        })),
        resources: [
          app("app-pinned", `{uri:kv-acmebot}/secrets/${PINNED}/{version:kv-acmebot/certificates/${PINNED}}`),
          app("app-key", `{uri:kv-acmebot}/secrets/${NOT_EXPORTABLE}`),
        ],
      },
    ],
  };
}

let service: Service;
beforeAll(async () => {
  const env = {
    LICENSE_KEY: await licence(),
    // An authority of no certificate. A later test configures that of the company.
    ARI_DIRECTORIES: "Another Authority=https://another.example/directory",
  };
  service = await Service.start({ company: companyWithConsumers(), env });
  await service.scan();
});
afterAll(() => service?.stop());

const BASE = "/compliance/certificates/readiness";
const read = async (query = "") => (await service.admin("GET", `${BASE}${query}`)).body;
// biome-ignore lint/suspicious/noExplicitAny: the tests know the shape of the response
const readItem = async (name: string): Promise<any> =>
  // biome-ignore lint/suspicious/noExplicitAny: as above
  (await read("?limit=1000")).items.find((item: any) => item.name === name);
const renewalInfoRequests = () => service.cloud.control.counts()["acme.renewalInfo"] ?? 0;

test("renewals a year follow the dated limits for public certificates, and the validity for private ones", async () => {
  const { items, summary, nextCursor } = await read("?limit=1000");
  expect([items.length, nextCursor]).toEqual([70, null]);
  const renewals = (prefix: string) =>
    LIFETIMES_DAYS.map((days) => {
      const { renewalsPerYear, validityDays } = items.find(
        (item: { name: string }) => item.name === `${prefix}-${days}-days-on-time`,
      );
      return [validityDays, renewalsPerYear.today, renewalsPerYear.at100Days, renewalsPerYear.at47Days];
    });
  // Rows: validity in days, and the renewals a year today (until 2027-03-14, the limit is 200 days) and under the limits of 100
  // and of 47 days. The renewals are 365 days divided by the validity, or by the limit if it is shorter, rounded up.
  const ofPublic = [
    [6, 61, 61, 61],
    [47, 8, 8, 8],
    [90, 5, 5, 8],
    [200, 2, 4, 8],
    [398, 2, 4, 8],
  ];
  const ofPrivate = [
    [6, 61, 61, 61],
    [47, 8, 8, 8],
    [90, 5, 5, 5],
    [200, 2, 2, 2],
    [398, 1, 1, 1],
  ];
  expect(renewals("policy")).toEqual(ofPublic);
  expect(renewals("acmebot")).toEqual(ofPublic);
  expect(renewals("cert-manager")).toEqual(ofPrivate);
  expect(renewals("cadence")).toEqual(ofPrivate);
  const sum = (rows: number[][], column: number) => rows.reduce((total, row) => total + row[column]!, 0);
  // Three timings of two public and two private renewers, and two timings by hand.
  expect(summary.renewalsPerYear).toEqual({
    today: 6 * sum(ofPublic, 1) + 8 * sum(ofPrivate, 1),
    at100Days: 6 * sum(ofPublic, 2) + 8 * sum(ofPrivate, 2),
    at47Days: 6 * sum(ofPublic, 3) + 8 * sum(ofPrivate, 3),
  });
});

test("the sums name who renews and what would fail, and agree with the certificates", async () => {
  const { items, summary } = await read("?limit=1000");
  const byRenewer = summary.byRenewer.map((one: { renewedBy: string; certificates: number }) => [
    one.renewedBy,
    one.certificates,
  ]);
  expect(byRenewer).toEqual([
    ["keyVaultPolicy", 15],
    ["acmebot", 15],
    ["certManager", 15],
    ["observed", 10],
    ["none", 15],
  ]);
  expect(summary.byProblem).toEqual([
    { code: "importedByHand", certificates: 15 },
    { code: "renewerStopped", certificates: 35 },
    { code: "noOwner", certificates: 10 },
    // DigiCert issued 6 and 47 days where the policy ordered one and two months.
    { code: "orderNotMet", certificates: 6 },
  ]);
  expect(summary.consumersKnown).toBe(false);
  const states = Object.groupBy(items, ({ state }: { state: string }) => state);
  expect(summary).toMatchObject({
    certificates: 70,
    ready: states.ready!.length,
    failing: states.failing!.length,
    unknown: 0,
    withoutRenewals: 0,
  });
  expect(await readItem("policy-90-days-on-time")).toMatchObject({
    state: "ready",
    problems: [],
    publiclyTrusted: true,
    renewedBy: "keyVaultPolicy",
    orderedMonths: 3,
  });
});

test("after a discovery of dependencies, pinned versions and private keys that can't be exported are problems", async () => {
  const { status, body } = await service.admin("POST", "/api/assets/dependencies/discover");
  expect([status, body.status]).toEqual([201, "completed"]);
  const { summary } = await read();
  expect(summary.consumersKnown).toBe(true);
  const problemsOf = async (name: string) => (await readItem(name)).problems;
  expect(await problemsOf(PINNED)).toEqual([{ code: "pinnedConsumer", detail: expect.stringContaining("app-pinned") }]);
  expect(await problemsOf(NOT_EXPORTABLE)).toEqual([{ code: "keyNotExportable", detail: expect.any(String) }]);
});

test("the next scan asks an authority that is configured later, once for each of its unexpired certificates, and again after Retry-After only", async () => {
  await service.scan();
  expect(renewalInfoRequests()).toBe(0);
  await service.hosts.splice(0)[0]!.stop();
  await service.addHost({ ARI_DIRECTORIES: service.cloud.environment.ARI_DIRECTORIES! });
  await service.scan({ mode: "delta" });
  expect(renewalInfoRequests()).toBe(10);
  const item = await readItem("acmebot-47-days-on-time");
  const expiry = Date.parse(item.expiresOn);
  // The window of the simulated authority begins after two thirds of the validity and takes a tenth of it. The last second of
  // the validity counts, so the two dates are a second less than 47 days apart.
  const lifetime = 47 * DAY_MS - SECOND_MS;
  const atShare = (share: number) =>
    new Date(Math.floor((expiry - lifetime * (1 - share)) / 1000) * 1000).toISOString();
  expect(item).toMatchObject({
    windowStart: atShare(2 / 3),
    windowEnd: atShare(2 / 3 + 0.1),
    windowSource: "ari",
    authorityCheck: { failure: null },
  });
  const { checkedAt, retryAfter } = item.authorityCheck;
  // The simulated authority's Retry-After.
  expect(Date.parse(retryAfter) - Date.parse(checkedAt)).toBe(6 * HOUR_MS);
  await service.scan();
  await service.scan({ mode: "delta" });
  expect(renewalInfoRequests()).toBe(10);
});

test("only the window of a new version is requested, and a failure of the authority costs only that certificate", async () => {
  const { control } = service.cloud;
  const fault = control.addFault({ match: { operation: "acme.renewalInfo" }, action: { kind: "fail", status: 503 } });
  control.putCertificate("kv-acmebot", {
    name: "acmebot-6-days-late",
    issuer: "Unknown",
    authority: "LetsEncrypt",
    validityDays: 6,
    tags: { Issuer: "Acmebot", owner: "certificates@acme.example" },
  });
  await service.scan();
  await service.scan();
  expect(renewalInfoRequests()).toBe(11);
  expect((await readItem("acmebot-6-days-late")).authorityCheck.failure).toBe("letsencrypt.localhost answered 503.");
  expect((await readItem("acmebot-6-days-late")).windowSource).not.toBe("ari");
  expect((await readItem("acmebot-47-days-on-time")).windowSource).toBe("ari");
  control.removeFault(fault);
});

test("pages continue, and filters select", async () => {
  const first = await read("?limit=40");
  const second = await read(`?limit=40&cursor=${first.nextCursor}`);
  expect([first.items.length, second.items.length, second.summary]).toEqual([40, 30, null]);
  const ids = [...first.items, ...second.items].map(({ id }) => id);
  expect(new Set(ids).size).toBe(70);
  const ofVault = await read("?vault=kv-by-hand&failing=true");
  expect([ofVault.items.length, ofVault.summary.failing]).toEqual([10, 10]);
  expect((await read("?vault=kv-by-hand&failing=false")).items).toEqual([]);
});

test("the CSV has a line for each certificate, and the PDF has the sums", async () => {
  const { headers, text } = await service.admin("GET", `${BASE}/csv`);
  expect(headers.get("content-disposition")).toContain("certificate-readiness.csv");
  const [header, ...rows] = parseCsv(text.replace(/^\uFEFF/, ""));
  expect(header!.slice(0, 4)).toEqual(["id", "state", "problems", "renewedBy"]);
  expect(rows).toHaveLength(70);
  expect(rows.find(([id]) => id === "kv-by-hand.certificate.by-hand-90-days-late")!.slice(1, 4)).toEqual([
    "failing",
    "importedByHand; noOwner",
    "none",
  ]);
  const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
  const pdf = await fetch(`${service.url}${BASE}/pdf`, { headers: { authorization: `Bearer ${token}` } });
  const content = await pdfText(new Uint8Array(await pdf.arrayBuffer()));
  expect(content).toContain("Certificate readiness");
  expect(content).toContain("Why renewals would fail");
  expect(content).toContain("kv-by-hand.certificate.by-hand-398-days-late");
});

test("a public certificate that is valid for longer than its day allows fails its check, and the fix orders what is allowed", async () => {
  const query = "check=certificate-validity-period&resource=kv-policy.certificate.policy-398-days-on-time";
  const { body } = await service.admin("GET", `/compliance/violations?${query}`);
  const [violation] = body.items;
  expect(violation.evidence).toMatch(/valid for 398 days .*; authorities may issue 200 days since 2026-03-15\.$/);
  expect(violation.remediation.portal).toContain("validity period 6 months or less");
  expect(violation.remediation.cli).toContain("validityInMonths=6");
});
