import { spawn } from "node:child_process";
import path from "node:path";
import { text } from "node:stream/consumers";
import { acmeCompany } from "simulated-cloud/company/acme.ts";
import { PARTNER_REGISTRATION, SHOP_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { appIdOf, type CompanyApplication, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { CompanyKey, CompanySecret, CompanyVault } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";

// A second program (main.py) reads the cloud by its own protocols and recomputes the service's answers. It is in another
// language and was written from the pages in docs/ alone. It recomputes violations, score, controls, matches, blast radii,
// credentials of B2C tenants and alert previews. A difference means that the service or a page is wrong.

const root = path.resolve(import.meta.dirname, "../..");
const isSkipped = skipWithout("python");

/** Secrets with days at the edges of thresholds, limits and recommended lifetimes, and before the start of validity. */
const EDGES: CompanySecret[] = [
  { name: "ends-in-7", expiresInDays: 7 },
  { name: "ends-in-7-01", expiresInDays: 7.01 },
  { name: "ends-in-30", expiresInDays: 30 },
  { name: "ends-in-30-01", expiresInDays: 30.01 },
  { name: "valid-720", createdDaysAgo: 0, expiresInDays: 720 },
  { name: "valid-730", createdDaysAgo: 10, expiresInDays: 720 },
  { name: "valid-730-01", createdDaysAgo: 10, expiresInDays: 720.01 },
  { name: "used-729-99", createdDaysAgo: 729.99 },
  { name: "used-730-01", createdDaysAgo: 730.01 },
  { name: "starts-later", createdDaysAgo: 100, activeInDays: 40, expiresInDays: 760 },
  { name: "disabled", enabled: false, expiresInDays: -5 },
  { name: "blank-type", contentType: "  ", expiresInDays: 90 },
  { name: "typed", contentType: "text/plain", expiresInDays: 90 },
  { name: "expired-just-now", expiresInDays: -0.001 },
];
const KEYS: CompanyKey[] = [
  { name: "symmetric", type: "oct-HSM" },
  { name: "bitcoin", type: "EC", curve: "P-256K" },
  { name: "small", size: 1024 },
  { name: "small-disabled", size: 1024, enabled: false },
  { name: "fixed", size: 2048, rotation: { rotateBeforeExpiryDays: 30, expiryDays: 365 }, expiresInDays: 30 },
];
const edgeVault = (name: string, more: Partial<CompanyVault> = {}): CompanyVault => ({
  name,
  secrets: EDGES,
  keys: KEYS,
  certificates: [
    { name: "year", validityMonths: 12, expiresInDays: 100 },
    { name: "longer", validityMonths: 13, expiresInDays: 100, issuer: "DigiCert" },
    { name: "curve", type: "EC", curve: "P-256K", expiresInDays: 7.01 },
  ],
  ...more,
});
/** Applications with client secrets and certificates at the edges of windows and limits. */
const DATED: CompanyApplication[] = [
  { name: "Edge Billing", secrets: [{ name: "one", expiresInDays: 203.5, createdDaysAgo: 20 }] },
  {
    name: "Edge Twins",
    secrets: [
      { name: "first", expiresInDays: 211.25, createdDaysAgo: 5 },
      { name: "second", expiresInDays: 211.25, createdDaysAgo: 5 },
    ],
  },
  {
    name: "Edge Year",
    secrets: [{ name: "year", createdDaysAgo: 10, expiresInDays: 355 }],
    owners: ["edge@acme.example"],
  },
  { name: "Edge Longer", secrets: [{ name: "year", createdDaysAgo: 10, expiresInDays: 355.01 }] },
  { name: "Edge Saml", samlSigning: { expiresInDays: 5 } },
  {
    name: "Edge Certificates",
    secrets: [{ name: "beside", expiresInDays: -3 }],
    certificates: [
      { name: "leap", createdDaysAgo: 10, expiresInDays: 356 },
      { name: "more", createdDaysAgo: 10, expiresInDays: 356.01 },
    ],
    federated: [{ name: "f", issuer: "https://issuer.example", subject: "s" }],
  },
];
/** Vault secrets that match the applications above by expiry date, name, tag or time of creation. */
const FITTING: CompanySecret[] = [
  { name: "unrelated", expiresInDays: 203.5, createdDaysAgo: 400 },
  { name: "twin-a", expiresInDays: 211.25, createdDaysAgo: 400 },
  { name: "twin-b", expiresInDays: 212.2, createdDaysAgo: 5 },
  { name: "edge-longer-client-secret", createdDaysAgo: 10 },
  { name: "edge-year", tags: { "client-id": appIdOf("Edge Longer") } },
  { name: "edge-certificates-client-id", contentType: appIdOf("Edge Certificates") },
  { name: "edge-certificates-client-secret" },
];

let service: Service;
/** A comparison of the second program: how much it compared, and the differences. */
interface Comparison {
  compared: number;
  differences: unknown[][];
}
/** The second program's result: its comparisons by name, and the number of matches of each confidence. */
let recomputed: {
  comparisons: Record<string, Comparison>;
  matchesByConfidence: Record<string, number>;
};

beforeAll(async () => {
  if (isSkipped) return;
  const acme = acmeCompany(1);
  const [first, ...others] = acme.subscriptions;
  const edges = [
    edgeVault("kv-edges-rbac"),
    edgeVault("kv-edges-policies", { rbac: false, softDelete: false, purgeProtection: true }),
    { ...edgeVault("kv-edges-fit"), secrets: FITTING },
  ];
  const subscriptions = [{ ...first!, vaults: [...(first!.vaults ?? []), ...edges] }, ...others];
  service = await Service.start({
    company: { ...acme, subscriptions, applications: [...(acme.applications ?? []), ...DATED] },
    env: { LICENSE_KEY: await licence() },
  });
  const registrations = [
    ["acmeshop.onmicrosoft.com", SHOP_REGISTRATION],
    ["acmepartners.onmicrosoft.com", PARTNER_REGISTRATION],
  ].map(([domain, name]) => registrationOf(domain!, name!));
  for (const registration of registrations) {
    expect((await service.admin("POST", "/b2c/tenants", registration)).status).toBe(201);
    await finished(`/b2c/tenants/${registration.tenantId}/discover`);
  }
  await finished("/api/automation/rotation/discover");
  // Later than all that stores secrets in the service's own vault, such as the registrations: that vault is scanned too, and the
  // second program reads it at the end. acme has vaults that the service may not read, so no scan reads everything.
  expect(await service.scan()).toMatchObject({ status: "partial" });
  await finished("/api/assets/dependencies/discover");
  await service.waitUntilIdle();
  recomputed = await recompute(registrations);
  console.info(
    Object.entries(recomputed.comparisons)
      .map(([name, one]) => `${name}: ${one.compared} compared, ${one.differences.length} differ`)
      .join("\n"),
    `\nmatches: ${JSON.stringify(recomputed.matchesByConfidence)}`,
  );
}, 600_000);
afterAll(() => service?.stop());

/** Starts a run and waits for its end. */
async function finished(route: string): Promise<void> {
  const started = await service.admin("POST", route);
  expect([route, started.status]).toEqual([route, 201]);
  const isOver = async () => (await service.admin("GET", started.headers.get("location")!)).body.finishedAt !== null;
  await vi.waitUntil(isOver, { timeout: 150_000, interval: 200 });
}

function registrationOf(domain: string, name: string) {
  const {
    id,
    name: displayName,
    clientId,
  } = service.cloud.control.tenants.list().find((one) => one.domain === domain)!;
  return {
    tenantId: id,
    tenantDomain: domain,
    displayName,
    clientId,
    clientSecret: secretValueOf(name, "lifecycle"),
    autoDiscover: false,
  };
}

const rule = (alertType: string, thresholds: number[]) => ({
  name: alertType,
  alertType,
  ...(thresholds.length > 0 && { thresholds }),
  deliveryMethod: "email",
  deliveryMode: "immediate",
  recipients: ["on-call@acme.example"],
});

/** Runs the second program. */
async function recompute(registrations: object[]): Promise<typeof recomputed> {
  const child = spawn("python3", ["-B", path.join(import.meta.dirname, "main.py")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.stdin.end(
    JSON.stringify({
      cloud: service.cloud.environment,
      service: { url: service.url, token: await service.signIn(ADMIN) },
      docs: path.join(root, "docs"),
      registrations,
      rules: {
        expiration: rule("expiration", [30, 7, 1]),
        expired: rule("expired", []),
        credentialExpiry: rule("credentialExpiry", [30, 7, 1]),
      },
    }),
  );
  const output = await text(child.stdout);
  const { matchesByConfidence, ...comparisons } = JSON.parse(output || "{}");
  return { comparisons, matchesByConfidence: matchesByConfidence?.counts ?? {} };
}

/** Fewest results that each comparison must have. With fewer, the second program did not read the whole cloud. */
const FEWEST = {
  assets: 940,
  b2cPoliciesAndProviders: 50,
  violations: 1200,
  score: 8,
  pairs: 5200,
  checks: 44,
  controls: 137,
  matches: 110,
  dependencies: 200,
  blastRadius: 50,
  consumerWeights: 160,
  "alerts.expiration": 230,
  "alerts.expired": 100,
  "alerts.credentialExpiry": 150,
};

test.skipIf(isSkipped).each(Object.entries(FEWEST))(
  "the second program agrees on %s, and compares at least %i",
  (name, fewest) => {
    const comparison = recomputed.comparisons[name];
    expect(comparison?.differences.slice(0, 20)).toEqual([]);
    expect(comparison?.compared).toBeGreaterThanOrEqual(fewest);
  },
);

test.skipIf(isSkipped)("matches of every confidence were compared", () => {
  const { certain = 0, likely = 0, possible = 0 } = recomputed.matchesByConfidence;
  expect(Math.min(certain, likely, possible)).toBeGreaterThan(0);
});
