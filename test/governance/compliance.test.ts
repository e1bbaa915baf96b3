// Compliance over HTTP, on a running host with a simulated cloud: a large company, and one whose exact score is known.
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { CHECKS, checkOfId, EDITION } from "../../shared/compliance/checks/all.ts";
import type { Remediation } from "../../shared/compliance/remedies/remediation.ts";
import { sourceOf } from "../../shared/inventory/asset.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { registrationOf } from "../b2c/support.ts";
import { destructiveLines, findOrderMistakes } from "../compliance/remedy-order.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";

interface Violation {
  id: string;
  resourceId: string;
  resourceType: string;
  checkId: string;
  severity: string;
  title: string;
  frameworks: string[];
  evidence: string;
  remediation: Remediation;
  exempted: boolean;
  exemptionId: string | null;
  vaultName: string | null;
  subscriptionId: string | null;
  owner: string | null;
}
interface Asset {
  id: string;
  type: string;
  status: string;
  expiresOn: string | null;
  keyType: string | null;
  source: string;
}
interface Control {
  id: string;
  status: string;
  checks: { id: string; passed: number; failed: number }[];
}

describe("the simulated company acme", () => {
  const storageClock = movedClock();
  let service: Service;
  let violations: Violation[];
  let assets: Asset[];
  /** The number of resources that pass each check. Known only for checks that belong to a framework. */
  const passedByCheck = new Map<string, number>();

  beforeAll(async () => {
    service = await Service.start({
      company: "acme",
      env: { LICENSE_KEY: await licence() },
      storageEnv: storageClock.environment,
    });
    await service.scan();
    await runDiscovery("/api/automation/rotation/discover");
    for (const tenant of ["shop", "partners"] as const) {
      const { headers } = await service.admin("POST", "/b2c/tenants", registrationOf(service.cloud, tenant));
      await runDiscovery(`${headers.get("location")}/discover`);
    }
    await runDiscovery("/api/assets/dependencies/discover");
    // References that discovery found are evaluated later, through the queue.
    const areReferencesEvaluated = async () =>
      (await service.listAll("/compliance/violations")).some(({ checkId }) => checkId === "secret-reference-resolved");
    await vi.waitUntil(areReferencesEvaluated, { timeout: 150_000, interval: 200 });
    // Each run that a call started has a message hidden for half a minute, which would continue the work of a crashed process.
    await service.waitUntilIdle();
    await storageClock.add(MINUTE_MS);
    await service.waitForEmptyQueues();
    [violations, assets] = await Promise.all([
      service.listAll("/compliance/violations"),
      service.listAll("/api/assets/discovery/assets"),
    ]);
    for (const { id } of await service.listAll("/compliance/frameworks")) {
      const { body } = await service.admin("GET", `/compliance/frameworks/${id}`);
      for (const control of body.controls as Control[]) {
        for (const check of control.checks) passedByCheck.set(check.id, check.passed);
      }
    }
  });
  afterAll(async () => {
    await service?.stop();
    storageClock.remove();
  });

  /** Starts a discovery and waits for its end. */
  async function runDiscovery(path: string): Promise<void> {
    const started = await service.admin("POST", path);
    expect(started.status, path).toBe(201);
    const hasEnded = async () =>
      (await service.admin("GET", started.headers.get("location")!)).body.status !== "running";
    await vi.waitUntil(hasEnded, { timeout: 150_000, interval: 200 });
  }

  /** Returns whether the check applies to the asset, judged by the asset's fields in the API. */
  function isCheckApplicable(checkId: string, { status, expiresOn, keyType, source }: Asset): boolean {
    const check = checkOfId.get(checkId)!;
    if (source !== (check.resourceType === "vault" ? "keyVault" : sourceOf(check))) return false;
    if (/-near-expiry-/.test(checkId)) return expiresOn !== null && status !== "expired";
    if (/-expired$|^(secret|key)-validity-period$/.test(checkId)) return expiresOn !== null;
    if (checkId.endsWith("-rsa-size")) return keyType?.startsWith("RSA") ?? false;
    if (checkId.endsWith("-curve")) return keyType?.startsWith("EC") ?? false;
    return true;
  }

  /**
   * Checks that no resource of acme fails: no consumer references a missing certificate, no reference names a whole vault, and
   * no workspace with usage logs is configured.
   */
  const CHECKS_WITHOUT_RESULTS = new Set([
    "certificate-reference-resolved",
    "vault-reference-resolved",
    "secret-unused",
  ]);
  const checksWithResults = CHECKS.filter(({ id }) => !CHECKS_WITHOUT_RESULTS.has(id));
  test.each(checksWithResults.map((check) => [check.id, check] as const))(
    "has failing and passing resources for %s",
    (id, check) => {
      const failing = violations.filter(({ checkId }) => checkId === id);
      expect(failing.length, "failing").toBeGreaterThan(0);
      for (const { title, severity, resourceType, evidence } of failing) {
        expect({ title, severity, resourceType }).toEqual({
          title: typeof check.failureTitle === "string" ? check.failureTitle : check.failureTitle(evidence),
          severity: check.severity,
          resourceType: check.resourceType,
        });
        expect(evidence).not.toBe("");
      }
      const failingIds = new Set(failing.map(({ resourceId }) => resourceId));
      const passing =
        passedByCheck.get(id) ??
        assets.filter(
          (asset) => asset.type === check.resourceType && isCheckApplicable(id, asset) && !failingIds.has(asset.id),
        ).length;
      expect(passing, "passing").toBeGreaterThan(0);
    },
  );

  test("has no remediation that removes something before its replacement works", () => {
    const mistakes = violations.flatMap(({ id, remediation }) =>
      findOrderMistakes(remediation).map((mistake) => `${id} ${mistake}`),
    );
    expect(mistakes).toEqual([]);
    const destructive = violations.filter(({ remediation }) => destructiveLines(remediation).length > 0);
    expect(destructive.length).toBeGreaterThan(100);
    expect(new Set(destructive.map(({ checkId }) => checkId)).size).toBeGreaterThan(10);
  });

  test("lists its violations in order of severity, check and resource, with any filter", async () => {
    const severities = ["critical", "high", "medium", "low"];
    const sorted = [...violations].sort(
      (a, b) =>
        severities.indexOf(a.severity) - severities.indexOf(b.severity) ||
        compareStrings(a.checkId, b.checkId) ||
        compareStrings(a.resourceId.toLowerCase(), b.resourceId.toLowerCase()),
    );
    expect(violations.map(({ id }) => id)).toEqual(sorted.map(({ id }) => id));
    const { vaultName, subscriptionId } = violations.find((violation) => violation.vaultName !== null)!;
    const owner = violations.find((violation) => violation.vaultName !== null && violation.owner !== null)!.owner!;
    const queries: Record<string, string>[] = [
      { severity: "high" },
      { framework: "cis-azure-6.0.0" },
      { severity: "medium", framework: "soc-2" },
      { check: "secret-expired" },
      { vault: vaultName! },
      { subscription: subscriptionId! },
      { owner },
      { exempted: "false" },
    ];
    for (const query of queries) {
      const { severity, framework, check, vault, subscription } = query;
      const matching = violations.filter(
        (violation) =>
          (severity === undefined || violation.severity === severity) &&
          (framework === undefined || violation.frameworks.includes(framework)) &&
          (check === undefined || violation.checkId === check) &&
          (vault === undefined || violation.vaultName === vault) &&
          (subscription === undefined || violation.subscriptionId === subscription) &&
          (query.owner === undefined || violation.owner === owner),
      );
      expect(matching.length, JSON.stringify(query)).toBeGreaterThan(0);
      const { body } = await service.admin("GET", `/compliance/violations?${new URLSearchParams(query)}&limit=1000`);
      // The API returns a total for the owner filter only if one request could read all matching violations.
      expect(body.total).toBe(matching.length);
      expect(body.items.map(({ id }: Violation) => id)).toEqual(matching.slice(0, 1000).map(({ id }) => id));
    }
  });

  test("has a framework for each critical violation", async () => {
    const critical = violations.filter(({ severity }) => severity === "critical");
    expect(critical.length).toBeGreaterThan(50);
    expect(critical.filter(({ frameworks }) => frameworks.length === 0)).toEqual([]);
    const { body } = await service.admin("GET", "/compliance/violations?framework=pci-dss-4.0.1&check=secret-expired");
    expect(body.total).toBe(violations.filter(({ checkId }) => checkId === "secret-expired").length);
  });

  test("states the required Azure CLI version only in commands for a vault itself", () => {
    const vaultViolations = violations.filter(({ remediation }) => /az keyvault (update|show) /.test(remediation.cli));
    expect(vaultViolations.length).toBeGreaterThan(0);
    const withVersion = violations.filter(({ remediation }) =>
      remediation.cli.startsWith("# Needs Azure CLI 2.90 or later.\n"),
    );
    expect(withVersion.map(({ id }) => id)).toEqual(vaultViolations.map(({ id }) => id));
    expect(withVersion.length).toBeLessThan(violations.length);
  });

  test("exports violations as CSV, and a framework as PDF", async () => {
    const csv = await service.admin("GET", "/compliance/violations/csv");
    expect(csv.text.trimEnd().split("\r\n").length).toBeGreaterThan(violations.length);
    const pdf = await service.admin("GET", "/compliance/frameworks/pci-dss-4.0.1/pdf?days=30");
    expect(pdf.headers.get("content-type")).toBe("application/pdf");
    expect(pdf.text).toMatch(/^%PDF-/);
  });

  test("has a score that agrees with its violations", async () => {
    const { body } = await service.admin("GET", "/compliance/score?history=30");
    const count = (severity: string) => violations.filter((violation) => violation.severity === severity).length;
    const bySeverity = {
      critical: count("critical"),
      high: count("high"),
      medium: count("medium"),
      low: count("low"),
    };
    expect(body).toMatchObject({ failed: violations.length, bySeverity, exempted: 0, evaluation: null });
    expect(body.total).toBe(body.passed + body.failed);
    expect(body.history.at(-1)).toEqual({
      // The service uses the storage clock, which `beforeAll` moved by a minute.
      date: new Date(Date.now() + MINUTE_MS).toISOString().slice(0, 10),
      score: body.score,
      passed: body.passed,
      failed: body.failed,
      total: body.total,
      edition: EDITION,
    });
  });
});

/** A company with one vault and two secrets, one of them without an expiry. */
const TWO_SECRETS: Company = {
  subscriptions: [
    {
      name: "One",
      vaults: [
        {
          name: "kv-one",
          publicNetworkAccess: "Disabled",
          privateEndpoints: 1,
          secrets: [
            { name: "expiring", expiresInDays: 300, contentType: "text/plain" },
            { name: "without-expiry", contentType: "text/plain" },
          ],
        },
      ],
    },
  ],
};
/** CIS 6.0.0 requires an expiry for secrets in vaults with role-based access control. */
const [FRAMEWORK, CONTROL, CHECK] = ["cis-azure-6.0.0", "8.3.3", "secret-expiry-set-rbac"];

describe("a company with two secrets", () => {
  const storageClock = movedClock();
  let service: Service;
  beforeAll(async () => {
    service = await Service.start({ company: TWO_SECRETS, storageEnv: storageClock.environment });
    await service.scan();
  });
  afterAll(async () => {
    await service?.stop();
    storageClock.remove();
  });

  const readControlStatuses = async (): Promise<Record<string, string>> => {
    const { body } = await service.admin("GET", `/compliance/frameworks/${FRAMEWORK}`);
    return Object.fromEntries(body.controls.map(({ id, status }: Control) => [id, status]));
  };
  const readScore = async () => {
    const { body } = await service.admin("GET", "/compliance/score");
    const { score, passed, failed, total, bySeverity, exempted } = body;
    return { score, passed, failed, total, bySeverity, exempted };
  };
  const readViolation = async (): Promise<Violation> =>
    (await service.admin("GET", `/compliance/violations?severity=high&framework=${FRAMEWORK}`)).body.items[0];

  /**
   * The score while the secret without an expiry fails. The weights of passed checks are 23 for the vault's seven, 27 for the
   * expiring secret's seven and 3 for the other secret's two. The failed check weighs 5. So the score is 53 of 58.
   */
  const SCORE_WITH_FAILURE = {
    score: 91.4,
    passed: 16,
    failed: 1,
    total: 17,
    exempted: 0,
    bySeverity: { critical: 0, high: 1, medium: 0, low: 0 },
  };
  const SCORE_WITH_EXEMPTION = {
    score: 100,
    passed: 16,
    failed: 0,
    total: 16,
    exempted: 1,
    bySeverity: { critical: 0, high: 0, medium: 0, low: 0 },
  };

  test("a framework lists each control as passed, failed, not applicable or manual", async () => {
    expect(await readControlStatuses()).toEqual({
      "8.3.3": "fail",
      "8.3.5": "pass",
      "8.3.6": "pass",
      "8.3.7": "pass",
      "8.3.8": "pass",
      "6.1.1.4": "pass",
      "8.3.1": "notApplicable",
      "8.3.2": "notApplicable",
      "8.3.4": "notApplicable",
      "8.3.9": "notApplicable",
      "8.3.11": "notApplicable",
      "8.3.10": "manual",
      "8.1.8.1": "manual",
    });
    const { body } = await service.admin("GET", `/compliance/frameworks/${FRAMEWORK}`);
    expect(body.controlsByStatus).toEqual({ pass: 5, fail: 1, notApplicable: 5, manual: 2 });
    expect((await service.admin("GET", "/compliance/frameworks/cis-azure-9")).status).toBe(404);
  });

  test("the score weights each result of a check by the check's severity", async () => {
    expect(await readScore()).toEqual(SCORE_WITH_FAILURE);
    const { body } = await service.admin("POST", "/compliance/evaluate");
    expect(body).toMatchObject({ status: "completed", vaultsLeft: 0, failedVaults: [], score: SCORE_WITH_FAILURE });
  });

  const createExemption = (until: Date, scope: object = { type: "asset", id: "kv-one.secret.without-expiry" }) =>
    service.admin("POST", "/compliance/exemptions", {
      checkId: CHECK,
      scope,
      category: "waiver",
      reason: "Replaced next year",
      ticket: "SEC-1",
      until: until.toISOString(),
    });
  const inAnHour = () => new Date(Date.now() + 3_600_000);

  test("an exempted violation stays listed, but does not count for the score or its control", async () => {
    const created = await createExemption(inAnHour());
    expect(created.status).toBe(201);
    const { id } = created.body;
    expect(created.headers.get("location")).toBe(`/compliance/exemptions/${id}`);
    expect((await createExemption(inAnHour())).status).toBe(409);
    expect(await readViolation()).toMatchObject({
      id: `${CHECK}.kv-one.secret.without-expiry`,
      exempted: true,
      exemptionId: id,
    });
    expect(await readScore()).toEqual(SCORE_WITH_EXEMPTION);
    expect((await readControlStatuses())[CONTROL]).toBe("pass");
    const read = await service.admin("GET", `/compliance/exemptions/${id}`);
    expect(read.body).toMatchObject({ checkId: CHECK, category: "waiver", ticket: "SEC-1", active: true });
    expect(await service.listAll("/compliance/exemptions")).toEqual([read.body]);

    expect((await service.admin("DELETE", `/compliance/exemptions/${id}`)).status).toBe(200);
    expect((await service.admin("GET", `/compliance/exemptions/${id}`)).status).toBe(404);
    expect(await readViolation()).toMatchObject({ exempted: false, exemptionId: null });
    expect(await readScore()).toEqual(SCORE_WITH_FAILURE);
    const entries = await service.admin("GET", "/audit/entries?limit=100");
    const types = entries.body.items.map(({ eventType }: Record<string, string>) => eventType);
    expect(types).toEqual(expect.arrayContaining(["compliance.exemptionCreated", "compliance.exemptionRemoved"]));
  });

  /** The difference between the storage clock and the clock of this process. */
  let clockOffsetMs = 0;

  test.each([{ type: "all" }, { type: "vault", id: "kv-one" }, { type: "asset", id: "kv-one.secret.without-expiry" }])(
    "an exemption of scope $type expires automatically",
    async (scope) => {
      const created = await createExemption(new Date(Date.now() + clockOffsetMs + 5 * MINUTE_MS), scope);
      expect(created.status).toBe(201);
      expect(await readScore()).toEqual(SCORE_WITH_EXEMPTION);
      await storageClock.add(5 * MINUTE_MS);
      clockOffsetMs += 5 * MINUTE_MS;
      await expect.poll(async () => (await readScore()).exempted, { timeout: 150_000 }).toBe(0);
      expect(await readScore()).toEqual(SCORE_WITH_FAILURE);
      expect((await readControlStatuses())[CONTROL]).toBe("fail");
      expect((await service.admin("GET", `/compliance/exemptions/${created.body.id}`)).body.active).toBe(false);
    },
  );

  test.each([
    ["an unknown check", { checkId: "no-check" }],
    ["a scope without its id", { scope: { type: "vault" } }],
    ["an unknown vault", { scope: { type: "vault", id: "kv-two" } }],
    ["an asset of another type", { scope: { type: "asset", id: "kv-one.key.without-expiry" } }],
    ["an end in the past", { until: "2020-01-01" }],
    ["no reason", { reason: " " }],
  ])("an exemption with %s is rejected", async (_, invalidFields) => {
    const { status } = await service.admin("POST", "/compliance/exemptions", {
      checkId: CHECK,
      scope: { type: "all" },
      category: "waiver",
      reason: "Accepted",
      until: inAnHour(),
      ...invalidFields,
    });
    expect(status).toBe(400);
  });
});

const compareStrings = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
