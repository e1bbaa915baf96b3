import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { CHECKS, checkOfId, EDITION } from "../../shared/compliance/checks/all.ts";
import type { Remediation } from "../../shared/compliance/remedies/remediation.ts";
import { sourceOf } from "../../shared/inventory/asset.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { registrationOf } from "../b2c/support.ts";
import { mistakesOfOrder, takingLines } from "../compliance/remedy-order.ts";
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
  /** Returns how many resources pass each check, for the checks that belong to a framework. */
  const passed = new Map<string, number>();

  beforeAll(async () => {
    service = await Service.start({
      company: "acme",
      env: { LICENSE_KEY: await licence() },
      storageEnv: storageClock.environment,
    });
    await service.scan();
    await ended("/api/automation/rotation/discover");
    for (const tenant of ["shop", "partners"] as const) {
      const { headers } = await service.admin("POST", "/b2c/tenants", registrationOf(service.cloud, tenant));
      await ended(`${headers.get("location")}/discover`);
    }
    await ended("/api/assets/dependencies/discover");
    // Newly discovered references are evaluated in a message of their own.
    const isJudged = async () =>
      (await service.all("/compliance/violations")).some(({ checkId }) => checkId === "secret-reference-resolved");
    await vi.waitUntil(isJudged, { timeout: 150_000, interval: 200 });
    // Each run that a call started has a message hidden for half a minute, which would continue the work of a crashed process.
    await service.idle();
    await storageClock.add(MINUTE_MS);
    await service.settled();
    [violations, assets] = await Promise.all([
      service.all("/compliance/violations"),
      service.all("/api/assets/discovery/assets"),
    ]);
    for (const { id } of await service.all("/compliance/frameworks")) {
      const { body } = await service.admin("GET", `/compliance/frameworks/${id}`);
      for (const control of body.controls as Control[]) {
        for (const check of control.checks) passed.set(check.id, check.passed);
      }
    }
  });
  afterAll(async () => {
    await service?.stop();
    storageClock.remove();
  });

  /** Starts a discovery and waits for its end. */
  async function ended(path: string): Promise<void> {
    const started = await service.admin("POST", path);
    expect(started.status, path).toBe(201);
    const isOver = async () => (await service.admin("GET", started.headers.get("location")!)).body.status !== "running";
    await vi.waitUntil(isOver, { timeout: 150_000, interval: 200 });
  }

  /** Returns whether the asset in the API has the data that the check needs. */
  function applies(checkId: string, { status, expiresOn, keyType, source }: Asset): boolean {
    const check = checkOfId.get(checkId)!;
    if (source !== (check.resourceType === "vault" ? "keyVault" : sourceOf(check))) return false;
    if (/-near-expiry-/.test(checkId)) return expiresOn !== null && status !== "expired";
    if (/-expired$|^(secret|key)-validity-period$/.test(checkId)) return expiresOn !== null;
    if (checkId.endsWith("-rsa-size")) return keyType?.startsWith("RSA") ?? false;
    if (checkId.endsWith("-curve")) return keyType?.startsWith("EC") ?? false;
    return true;
  }

  /**
   * In acme, no consumer references a missing certificate, references of no vault are known completely, and no workspace with
   * usage logs is configured.
   */
  const elsewhere = new Set(["certificate-reference-resolved", "vault-reference-resolved", "secret-unused"]);
  const here = CHECKS.filter(({ id }) => !elsewhere.has(id));
  test.each(here.map((check) => [check.id, check] as const))(
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
        passed.get(id) ??
        assets.filter((asset) => asset.type === check.resourceType && applies(id, asset) && !failingIds.has(asset.id))
          .length;
      expect(passing, "passing").toBeGreaterThan(0);
    },
  );

  test("has no remediation that removes something before its replacement works", () => {
    const mistakes = violations.flatMap(({ id, remediation }) =>
      mistakesOfOrder(remediation).map((mistake) => `${id} ${mistake}`),
    );
    expect(mistakes).toEqual([]);
    const taking = violations.filter(({ remediation }) => takingLines(remediation).length > 0);
    expect(taking.length).toBeGreaterThan(100);
    expect(new Set(taking.map(({ checkId }) => checkId)).size).toBeGreaterThan(10);
  });

  test("lists its violations by severity, check and resource, and filters them", async () => {
    const order = ["critical", "high", "medium", "low"];
    const sorted = [...violations].sort(
      (a, b) =>
        order.indexOf(a.severity) - order.indexOf(b.severity) ||
        compared(a.checkId, b.checkId) ||
        compared(a.resourceId.toLowerCase(), b.resourceId.toLowerCase()),
    );
    expect(violations.map(({ id }) => id)).toEqual(sorted.map(({ id }) => id));
    const { vaultName, subscriptionId } = violations.find((one) => one.vaultName !== null)!;
    const owner = violations.find((one) => one.vaultName !== null && one.owner !== null)!.owner!;
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
      const wanted = violations.filter(
        (one) =>
          (severity === undefined || one.severity === severity) &&
          (framework === undefined || one.frameworks.includes(framework)) &&
          (check === undefined || one.checkId === check) &&
          (vault === undefined || one.vaultName === vault) &&
          (subscription === undefined || one.subscriptionId === subscription) &&
          (query.owner === undefined || one.owner === owner),
      );
      expect(wanted.length, JSON.stringify(query)).toBeGreaterThan(0);
      const { body } = await service.admin("GET", `/compliance/violations?${new URLSearchParams(query)}&limit=1000`);
      // The violations of an owner are counted if the call could read all of them.
      expect(body.total).toBe(wanted.length);
      expect(body.items.map(({ id }: Violation) => id)).toEqual(wanted.slice(0, 1000).map(({ id }) => id));
    }
  });

  test("every critical violation belongs to a framework, and PCI DSS contains the expired secrets", async () => {
    const critical = violations.filter(({ severity }) => severity === "critical");
    expect(critical.length).toBeGreaterThan(50);
    expect(critical.filter(({ frameworks }) => frameworks.length === 0)).toEqual([]);
    const { body } = await service.admin("GET", "/compliance/violations?framework=pci-dss-4.0.1&check=secret-expired");
    expect(body.total).toBe(violations.filter(({ checkId }) => checkId === "secret-expired").length);
  });

  test("commands for a vault state the Azure CLI version they need, those for its objects do not", () => {
    const ofVaults = violations.filter(({ remediation }) => /az keyvault (update|show) /.test(remediation.cli));
    expect(ofVaults.length).toBeGreaterThan(0);
    const saying = violations.filter(({ remediation }) =>
      remediation.cli.startsWith("# Needs Azure CLI 2.90 or later.\n"),
    );
    expect(saying.map(({ id }) => id)).toEqual(ofVaults.map(({ id }) => id));
    expect(saying.length).toBeLessThan(violations.length);
  });

  test("exports all violations as CSV, and a framework as a report for assessors", async () => {
    const csv = await service.admin("GET", "/compliance/violations/csv");
    expect(csv.text.trimEnd().split("\r\n").length).toBeGreaterThan(violations.length);
    const pdf = await service.admin("GET", "/compliance/frameworks/pci-dss-4.0.1/pdf?days=30");
    expect(pdf.headers.get("content-type")).toBe("application/pdf");
    expect(pdf.text).toMatch(/^%PDF-/);
  });

  test("has a score that agrees with its violations", async () => {
    const { body } = await service.admin("GET", "/compliance/score?history=30");
    const of = (severity: string) => violations.filter((one) => one.severity === severity).length;
    const bySeverity = { critical: of("critical"), high: of("high"), medium: of("medium"), low: of("low") };
    expect(body).toMatchObject({ failed: violations.length, bySeverity, exempted: 0, evaluation: null });
    expect(body.total).toBe(body.passed + body.failed);
    expect(body.history.at(-1)).toEqual({
      // By the store's clock, which was moved.
      date: new Date(Date.now() + MINUTE_MS).toISOString().slice(0, 10),
      score: body.score,
      passed: body.passed,
      failed: body.failed,
      total: body.total,
      edition: EDITION,
    });
  });
});

/** Two secrets, one without an expiry, in a vault whose settings can't be read. */
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
            { name: "ends", expiresInDays: 300, contentType: "text/plain" },
            { name: "endless", contentType: "text/plain" },
          ],
        },
      ],
    },
  ],
};
/** CIS 6.0.0 requires an expiry of secrets in vaults with role-based access control. */
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

  const statuses = async (): Promise<Record<string, string>> => {
    const { body } = await service.admin("GET", `/compliance/frameworks/${FRAMEWORK}`);
    return Object.fromEntries(body.controls.map(({ id, status }: Control) => [id, status]));
  };
  const score = async () => {
    const { body } = await service.admin("GET", "/compliance/score");
    const { score, passed, failed, total, bySeverity, exempted } = body;
    return { score, passed, failed, total, bySeverity, exempted };
  };
  const violation = async (): Promise<Violation> =>
    (await service.admin("GET", `/compliance/violations?severity=high&framework=${FRAMEWORK}`)).body.items[0];

  // Passing weights: 23 of the vault's seven checks, 27 of the expiring secret's seven, 3 of the other secret's two. Failing:
  // 5.
  const FAILING = {
    score: 91.4,
    passed: 16,
    failed: 1,
    total: 17,
    exempted: 0,
    bySeverity: { critical: 0, high: 1, medium: 0, low: 0 },
  };
  const EXEMPTED = {
    score: 100,
    passed: 16,
    failed: 0,
    total: 16,
    exempted: 1,
    bySeverity: { critical: 0, high: 0, medium: 0, low: 0 },
  };

  test("a framework lists each control as passed, failed, not applicable or manual", async () => {
    expect(await statuses()).toEqual({
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

  test("the score weights pairs of check and resource by severity", async () => {
    expect(await score()).toEqual(FAILING);
    const { body } = await service.admin("POST", "/compliance/evaluate");
    expect(body).toMatchObject({ status: "completed", vaultsLeft: 0, failedVaults: [], score: FAILING });
  });

  const exempt = (until: Date, scope: object = { type: "asset", id: "kv-one.secret.endless" }) =>
    service.admin("POST", "/compliance/exemptions", {
      checkId: CHECK,
      scope,
      category: "waiver",
      reason: "Replaced next year",
      ticket: "SEC-1",
      until: until.toISOString(),
    });
  const inAnHour = () => new Date(Date.now() + 3_600_000);

  test("an exemption excludes its violation from score and control, visibly, until it is removed", async () => {
    const made = await exempt(inAnHour());
    expect(made.status).toBe(201);
    const { id } = made.body;
    expect(made.headers.get("location")).toBe(`/compliance/exemptions/${id}`);
    expect((await exempt(inAnHour())).status).toBe(409);
    expect(await violation()).toMatchObject({ id: `${CHECK}.kv-one.secret.endless`, exempted: true, exemptionId: id });
    expect(await score()).toEqual(EXEMPTED);
    expect((await statuses())[CONTROL]).toBe("pass");
    const got = await service.admin("GET", `/compliance/exemptions/${id}`);
    expect(got.body).toMatchObject({ checkId: CHECK, category: "waiver", ticket: "SEC-1", active: true });
    expect(await service.all("/compliance/exemptions")).toEqual([got.body]);

    expect((await service.admin("DELETE", `/compliance/exemptions/${id}`)).status).toBe(200);
    expect((await service.admin("GET", `/compliance/exemptions/${id}`)).status).toBe(404);
    expect(await violation()).toMatchObject({ exempted: false, exemptionId: null });
    expect(await score()).toEqual(FAILING);
    const entries = await service.admin("GET", "/audit/entries?limit=100");
    const types = entries.body.items.map(({ type, eventType }: Record<string, string>) => type ?? eventType);
    expect(types).toEqual(expect.arrayContaining(["compliance.exemptionCreated", "compliance.exemptionRemoved"]));
  });

  /** How far storage is ahead of this process. */
  let ahead = 0;

  test.each([{ type: "all" }, { type: "vault", id: "kv-one" }, { type: "asset", id: "kv-one.secret.endless" }])(
    "an exemption of scope $type expires automatically",
    async (scope) => {
      const made = await exempt(new Date(Date.now() + ahead + 5 * MINUTE_MS), scope);
      expect(made.status).toBe(201);
      expect(await score()).toEqual(EXEMPTED);
      await storageClock.add(5 * MINUTE_MS);
      ahead += 5 * MINUTE_MS;
      await expect.poll(async () => (await score()).exempted, { timeout: 150_000 }).toBe(0);
      expect(await score()).toEqual(FAILING);
      expect((await statuses())[CONTROL]).toBe("fail");
      expect((await service.admin("GET", `/compliance/exemptions/${made.body.id}`)).body.active).toBe(false);
    },
  );

  test.each([
    ["a check there is not", { checkId: "no-check" }],
    ["a scope without its id", { scope: { type: "vault" } }],
    ["a vault there is not", { scope: { type: "vault", id: "kv-two" } }],
    ["an asset of another type", { scope: { type: "asset", id: "kv-one.key.endless" } }],
    ["an end in the past", { until: "2020-01-01" }],
    ["no reason", { reason: " " }],
  ])("an exemption with %s is rejected", async (_, wrong) => {
    const { status } = await service.admin("POST", "/compliance/exemptions", {
      checkId: CHECK,
      scope: { type: "all" },
      category: "waiver",
      reason: "It is",
      until: inAnHour(),
      ...wrong,
    });
    expect(status).toBe(400);
  });
});

const compared = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
