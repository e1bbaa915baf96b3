import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { CHECKS, checkOfId } from "../../shared/compliance/checks/all.ts";
import { sourceOf } from "../../shared/inventory/asset.ts";
import { registrationOf } from "../b2c/room.ts";
import { licence } from "../support/licence.ts";
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
  exempted: boolean;
  exemptionId: string | null;
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

describe("the stand-in company acme", () => {
  let service: Service;
  let violations: Violation[];
  let assets: Asset[];
  /** Of the checks that some framework asks for, how many resources pass. */
  const passed = new Map<string, number>();

  beforeAll(async () => {
    service = await Service.start({ company: "acme", env: { LICENSE_KEY: await licence() } });
    await service.scan();
    await ended("/api/automation/rotation/discover");
    for (const tenant of ["shop", "partners"] as const) {
      const { headers } = await service.admin("POST", "/b2c/tenants", registrationOf(service.cloud, tenant));
      await ended(`${headers.get("location")}/discover`);
    }
    await ended("/api/assets/dependencies/discover");
    // What is known of references is judged by a message of its own.
    const isJudged = async () =>
      (await service.all("/compliance/violations")).some(({ checkId }) => checkId === "secret-reference-resolved");
    await vi.waitUntil(isJudged, { timeout: 120_000, interval: 200 });
    await settled(async () => (await service.admin("GET", "/compliance/score")).body);
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
  afterAll(() => service.stop());

  /** Has something discovered, and waits for it. */
  async function ended(path: string): Promise<void> {
    const begun = await service.admin("POST", path);
    expect(begun.status, path).toBe(201);
    const isOver = async () => (await service.admin("GET", begun.headers.get("location")!)).body.status !== "running";
    await vi.waitUntil(isOver, { timeout: 120_000, interval: 200 });
  }

  /** Waits until something is the same for two seconds. */
  async function settled(read: () => Promise<unknown>): Promise<void> {
    let before = "";
    const isSame = async () => {
      const [last, now] = [before, JSON.stringify(await read())];
      before = now;
      return now === last;
    };
    await vi.waitUntil(isSame, { timeout: 120_000, interval: 2_000 });
  }

  /** Whether what the API shows of the asset says that the check has something to judge there. */
  function applies(checkId: string, { status, expiresOn, keyType, source }: Asset): boolean {
    const check = checkOfId.get(checkId)!;
    if (source !== (check.resourceType === "vault" ? "keyVault" : sourceOf(check))) return false;
    if (/-near-expiry-/.test(checkId)) return expiresOn !== null && status !== "expired";
    if (/-expired$|^(secret|key)-validity-period$/.test(checkId)) return expiresOn !== null;
    if (checkId.endsWith("-rsa-size")) return keyType?.startsWith("RSA") ?? false;
    if (checkId.endsWith("-curve")) return keyType?.startsWith("EC") ?? false;
    return true;
  }

  /** Nothing refers to a certificate of acme in vain, and no list shows the vaults of which references can be followed. */
  const elsewhere = new Set(["certificate-reference-resolved", "vault-reference-resolved"]);
  const here = CHECKS.filter(({ id }) => !elsewhere.has(id));
  test.each(here.map((check) => [check.id, check] as const))("has what fails and what passes %s", (id, check) => {
    const failing = violations.filter(({ checkId }) => checkId === id);
    expect(failing.length, "failing").toBeGreaterThan(0);
    for (const { title, severity, resourceType, evidence } of failing) {
      expect({ title, severity, resourceType }).toEqual({
        title: check.title,
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
    for (const query of ["severity=high", "framework=cis-azure-6.0.0", "severity=medium&framework=soc-2"]) {
      const { severity, framework } = Object.fromEntries(new URLSearchParams(query));
      const wanted = violations.filter(
        (one) =>
          (severity === undefined || one.severity === severity) &&
          (framework === undefined || one.frameworks.includes(framework)),
      );
      const { body } = await service.admin("GET", `/compliance/violations?${query}&limit=1000`);
      expect(body.total).toBe(wanted.length);
      expect(body.items.map(({ id }: Violation) => id)).toEqual(wanted.map(({ id }) => id));
    }
  });

  test("has a score that agrees with its violations", async () => {
    const { body } = await service.admin("GET", "/compliance/score?history=30");
    const of = (severity: string) => violations.filter((one) => one.severity === severity).length;
    const bySeverity = { critical: of("critical"), high: of("high"), medium: of("medium"), low: of("low") };
    expect(body).toMatchObject({ failed: violations.length, bySeverity, exempted: 0, evaluation: null });
    expect(body.total).toBe(body.passed + body.failed);
    expect(body.history.at(-1)).toEqual({
      date: new Date().toISOString().slice(0, 10),
      score: body.score,
      passed: body.passed,
      failed: body.failed,
      total: body.total,
    });
  });
});

/** Two secrets of which one never expires, in a vault of which nothing can be said. */
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
/** CIS 6.0.0 asks for an expiry of secrets in vaults with role-based access control. */
const [FRAMEWORK, CONTROL, CHECK] = ["cis-azure-6.0.0", "8.3.3", "secret-expiry-set-rbac"];

describe("a company of two secrets", () => {
  let service: Service;
  beforeAll(async () => {
    service = await Service.start({ company: TWO_SECRETS });
    await service.scan();
  });
  afterAll(() => service.stop());

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

  // Passing: the vault's eight checks weigh 28, the dated secret's seven 27, the endless one's two 3. Failing: 5.
  const FAILING = {
    score: 92.1,
    passed: 17,
    failed: 1,
    total: 18,
    exempted: 0,
    bySeverity: { critical: 0, high: 1, medium: 0, low: 0 },
  };
  const EXEMPTED = {
    score: 100,
    passed: 17,
    failed: 0,
    total: 17,
    exempted: 1,
    bySeverity: { critical: 0, high: 0, medium: 0, low: 0 },
  };

  test("a framework says of each control whether it passes, fails, applies to nothing or needs a person", async () => {
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

  test("the score weighs pairs of check and resource by severity", async () => {
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

  test("an exemption takes its violation out of score and control, visibly, until it is removed", async () => {
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

  test.each([{ type: "all" }, { type: "vault", id: "kv-one" }, { type: "asset", id: "kv-one.secret.endless" }])(
    "an exemption of scope $type ends by itself",
    async (scope) => {
      const made = await exempt(new Date(Date.now() + 1500), scope);
      expect(made.status).toBe(201);
      expect(await score()).toEqual(EXEMPTED);
      while ((await score()).exempted > 0) await delay(200);
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
  ])("an exemption with %s is refused", async (_, wrong) => {
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
