// The checks themselves: for each check one resource that passes and one that fails, and what holds for all checks.
import { describe, expect, test } from "vitest";
import type { AssetCheck, Context, ReferenceFacts } from "../../shared/compliance/check.ts";
import { ASSET_CHECKS, CHECKS, successorsOf } from "../../shared/compliance/checks/all.ts";
import { vaultChecks } from "../../shared/compliance/checks/vault.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { VaultRecord } from "../../shared/inventory/vault.ts";
import { asset, context, credential, DAY_SECONDS, inDays, vault } from "./compliance-fixture.ts";

/** For each check of vaults, the properties with which the otherwise compliant vault fails it. */
const VAULT_FAILURES: Record<string, Partial<VaultRecord>> = {
  "vault-soft-delete": { softDelete: false },
  "vault-purge-protection": { purgeProtection: false },
  "vault-rbac": { rbacAuthorization: false },
  "vault-public-access": { publicNetworkAccess: "Enabled" },
  "vault-firewall": { publicNetworkAccess: "Enabled", networkDefaultAction: "Allow" },
  "vault-private-endpoint": { privateEndpoints: 0 },
  "vault-audit-logging": { diagnostics: [{ name: "metrics", auditEvents: false }] },
};
/** Facts from dependency discovery with which a resource passes the checks of references and use. */
const GOOD_REFERENCES: ReferenceFacts = {
  resolved: 2,
  unresolved: 0,
  examples: [],
  use: { unused: false, evidence: "A log has it read within 90 days." },
};
/** Facts from dependency discovery with which a resource fails these checks. */
const BAD_REFERENCES: ReferenceFacts = {
  resolved: 9,
  unresolved: 1,
  examples: ["app (webApp), A: SecretNotFound"],
  use: { unused: true, evidence: "No log has it read after 2026-01-01." },
};
const referencesFor = (id: string) =>
  id.endsWith("-reference-resolved") || id === "secret-unused" ? BAD_REFERENCES : GOOD_REFERENCES;
const EC_KEY = { keyType: "EC", keySize: undefined };
/**
 * For each check of assets, the properties with which the otherwise compliant asset fails it, and the nearest ones with which
 * it passes. `rbac: false` puts the asset into a vault with access policies.
 */
const ASSET_FAILURES: Record<string, { fails: Partial<AssetRecord>; passes?: Partial<AssetRecord>; rbac?: false }> = {
  "secret-expiry-set-rbac": { fails: { expiresOn: undefined } },
  "secret-expiry-set-access-policy": { fails: { expiresOn: undefined }, rbac: false },
  "secret-expired": { fails: { expiresOn: inDays(-1) } },
  "secret-near-expiry-warning": { fails: { expiresOn: inDays(30) }, passes: { expiresOn: inDays(30) + 1 } },
  "secret-near-expiry-critical": { fails: { expiresOn: inDays(7) }, passes: { expiresOn: inDays(7) + 1 } },
  "secret-validity-period": {
    fails: { createdOn: inDays(0), expiresOn: inDays(730) + 1 },
    passes: { createdOn: inDays(0), expiresOn: inDays(730) },
  },
  "secret-active-period": { fails: { createdOn: inDays(-730) - 1 }, passes: { createdOn: inDays(-730) } },
  "secret-content-type": { fails: { contentType: " " } },
  "key-expiry-set-rbac": { fails: { expiresOn: undefined } },
  "key-expiry-set-access-policy": { fails: { expiresOn: undefined }, rbac: false },
  "key-expired": { fails: { expiresOn: inDays(0) - 1 }, passes: { expiresOn: inDays(0) } },
  "key-near-expiry-warning": { fails: { expiresOn: inDays(29) } },
  "key-near-expiry-critical": { fails: { expiresOn: inDays(0) } },
  "key-validity-period": {
    fails: { notBefore: inDays(-1), expiresOn: inDays(800) },
    passes: { notBefore: inDays(100), expiresOn: inDays(800) },
  },
  "key-active-period": {
    fails: { createdOn: inDays(-1), notBefore: inDays(-800) },
    passes: { createdOn: inDays(-800), notBefore: inDays(-1) },
  },
  "key-type": { fails: { keyType: "oct-HSM" }, passes: { keyType: "EC-HSM" } },
  "key-rsa-size": { fails: { keySize: 1024 }, passes: { keySize: 2048 } },
  "key-curve": { fails: { ...EC_KEY, keyCurve: "P-256K" }, passes: { ...EC_KEY, keyCurve: "P-384" } },
  "key-rotation-policy": {
    fails: { rotationPolicy: { lifetimeActions: [{ action: "Notify", timeBeforeExpiry: "P30D" }] } },
    passes: { rotationPolicy: { lifetimeActions: [{ action: "rotate", timeBeforeExpiry: "P30D" }] } },
  },
  "certificate-expired": { fails: { expiresOn: inDays(-400) } },
  "certificate-near-expiry-warning": { fails: { expiresOn: inDays(8) } },
  "certificate-near-expiry-critical": { fails: { expiresOn: inDays(6) } },
  "certificate-validity-period": {
    fails: { notBefore: inDays(0), expiresOn: inDays(200) },
    passes: { notBefore: inDays(0), expiresOn: inDays(200) - 1 },
  },
  "certificate-issuer": {
    fails: { issuer: "CN=internal.example" },
    passes: { issuer: "CN=AlphaSSL, O=GlobalSign nv-sa" },
  },
  "certificate-auto-renewal": { fails: { autoRenew: false } },
  "certificate-rsa-size": { fails: { keySize: 1024 } },
  "certificate-curve": { fails: { ...EC_KEY, keyCurve: "P-256K" }, passes: { ...EC_KEY, keyCurve: "P-521" } },
  "secret-reference-resolved": { fails: {} },
  "secret-unused": { fails: {} },
  "certificate-reference-resolved": { fails: {} },
  "client-secret-expired": { fails: { expiresOn: inDays(0) - 1 }, passes: { expiresOn: inDays(0) } },
  "client-secret-near-expiry-warning": { fails: { expiresOn: inDays(30) }, passes: { expiresOn: inDays(30) + 1 } },
  "client-secret-near-expiry-critical": { fails: { expiresOn: inDays(7) }, passes: { expiresOn: inDays(7) + 1 } },
  "client-secret-validity-period": {
    fails: { notBefore: inDays(0), expiresOn: inDays(365) + 1 },
    passes: { notBefore: inDays(0), expiresOn: inDays(365) },
  },
  "client-secret-alone": {
    fails: { credential: credential({ secretsUntil: [inDays(90), inDays(90)] }) },
    passes: { credential: credential({ secretsUntil: [inDays(-1), inDays(90) - 1, inDays(90)] }) },
  },
  "client-secret-beside-certificate": {
    fails: { credential: credential({ certificatesUntil: [inDays(-3), inDays(0)] }) },
    passes: { credential: credential({ certificatesUntil: [inDays(-3), inDays(0) - 1] }) },
  },
  "client-secret-beside-federation": { fails: { credential: credential({ federated: true }) } },
  "client-secret-owner": { fails: { credential: credential({ owners: [] }) } },
  "application-certificate-expired": { fails: { expiresOn: inDays(-1) } },
  "application-certificate-near-expiry-warning": { fails: { expiresOn: inDays(20) } },
  "application-certificate-near-expiry-critical": { fails: { expiresOn: inDays(5) } },
  "application-certificate-validity-period": {
    fails: { notBefore: inDays(0), expiresOn: inDays(366) + 1 },
    passes: { notBefore: inDays(0), expiresOn: inDays(366) },
  },
  "application-certificate-owner": { fails: { credential: credential({ owners: [] }) } },
  "b2c-secret-expired": { fails: { expiresOn: inDays(-1) } },
  "b2c-secret-near-expiry-warning": { fails: { expiresOn: inDays(30) }, passes: { expiresOn: inDays(30) + 1 } },
  "b2c-secret-near-expiry-critical": { fails: { expiresOn: inDays(7) } },
  "client-secret-validity-period-b2c": {
    fails: { notBefore: inDays(0), expiresOn: inDays(365) + 1 },
    passes: { notBefore: inDays(0), expiresOn: inDays(365) },
  },
  "b2c-certificate-expired": { fails: { expiresOn: inDays(-1) } },
  "b2c-certificate-near-expiry-warning": { fails: { expiresOn: inDays(20) } },
  "b2c-certificate-near-expiry-critical": { fails: { expiresOn: inDays(5) } },
  "application-certificate-validity-period-b2c": { fails: { notBefore: inDays(0), expiresOn: undefined } },
  "b2c-key-expired": { fails: { expiresOn: inDays(-1) } },
  "b2c-key-near-expiry-warning": { fails: { expiresOn: inDays(29) } },
  "b2c-key-near-expiry-critical": { fails: { expiresOn: inDays(6) } },
};

/** Returns an asset that the check applies to, of a vault or of an application. */
const assetFor = (check: AssetCheck, change: Partial<AssetRecord>): AssetRecord =>
  asset("kv", check.resourceType, "a", {
    ...(check.source && { source: check.source, notBefore: inDays(-100), credential: credential() }),
    ...change,
  });

describe("the check passes the compliant resource and fails the other one", () => {
  test.each(vaultChecks)("$id", (check) => {
    expect(check.evaluate(vault("kv"), GOOD_REFERENCES).result).toBe("pass");
    expect(check.evaluate(vault("kv", VAULT_FAILURES[check.id]), referencesFor(check.id)).result).toBe("fail");
  });

  test.each(ASSET_CHECKS)("$id", (check) => {
    const { fails, passes = {}, rbac = true } = ASSET_FAILURES[check.id]!;
    const evaluate = (change: Partial<AssetRecord>, references = referencesFor(check.id)) =>
      check.evaluate({ asset: assetFor(check, change), vaultUsesRbac: rbac, references }, context);
    expect(evaluate(passes, GOOD_REFERENCES)).toMatchObject({ result: "pass", evidence: expect.stringMatching(/\.$/) });
    expect(evaluate(fails)).toMatchObject({ result: "fail", evidence: expect.stringMatching(/\.$/) });
    expect(evaluate({ ...fails, enabled: false }).result).toBe("notApplicable");
  });
});

test("a result that depends on time changes exactly at its `changesAt`", () => {
  const lifetimes: Partial<AssetRecord>[] = [
    { expiresOn: inDays(45), createdOn: inDays(-700) },
    { expiresOn: inDays(20), notBefore: inDays(-720) },
    { expiresOn: inDays(3), createdOn: inDays(-10) },
  ];
  let changes = 0;
  for (const check of ASSET_CHECKS) {
    for (const lifetime of lifetimes) {
      const certificatesUntil = [inDays(2), inDays(30)];
      const application = check.source === "entra" && { credential: credential({ certificatesUntil }) };
      const resource = { asset: assetFor(check, { ...lifetime, ...application }), vaultUsesRbac: true };
      const contextAt = (now: number): Context => ({ ...context, now });
      const { result, changesAt } = check.evaluate(resource, context);
      if (!check.timed) expect(changesAt).toBeUndefined();
      if (changesAt === undefined) continue;
      // `changesAt` is the first whole second with the new result. The result may already change in the second before it.
      expect(changesAt * 1000).toBeGreaterThan(context.now);
      expect(check.evaluate(resource, contextAt(changesAt * 1000 - 1001)).result).toBe(result);
      expect(check.evaluate(resource, contextAt(changesAt * 1000)).result).not.toBe(result);
      changes++;
    }
  }
  expect(changes).toBeGreaterThan(15);
});

test("a public certificate must keep the limit of the day its validity starts, a private one the limit in months, and an unread one none", () => {
  const check = ASSET_CHECKS.find(({ id }) => id === "certificate-validity-period")!;
  const evaluate = (change: Partial<AssetRecord>) =>
    check.evaluate({ asset: asset("kv", "certificate", "a", change), vaultUsesRbac: true }, context).result;
  const seconds = (date: string) => Date.parse(date) / 1000;
  /**
   * Returns the results for a validity of exactly this number of days, and for a second more. Both the first and the last
   * second are part of the validity, so that a validity of exactly N days ends a second before N days have passed.
   */
  const resultsAround = (from: string, days: number, change: Partial<AssetRecord> = {}) =>
    [-1, 0].map((offset) =>
      evaluate({ notBefore: seconds(from), expiresOn: seconds(from) + days * DAY_SECONDS + offset, ...change }),
    );
  const limits: [string, number][] = [
    ["2026-03-14", 398],
    ["2026-03-15", 200],
    ["2027-03-14", 200],
    ["2027-03-15", 100],
    ["2029-03-14", 100],
    ["2029-03-15", 47],
  ];
  for (const [from, days] of limits) expect([from, ...resultsAround(from, days)]).toEqual([from, "pass", "fail"]);
  // Embedded timestamps make a certificate of any authority public. Its own dates apply.
  const issuer = "CN=R12, O=Let's Encrypt, C=US";
  expect(resultsAround("2026-06-01", 200, { issuer, certificate: { hasTimestamps: true } })).toEqual(["pass", "fail"]);
  const dates = { notBefore: seconds("2026-06-01"), notAfter: seconds("2026-06-01") + 90 * DAY_SECONDS };
  expect(evaluate({ issuer, certificate: { hasTimestamps: true, ...dates } })).toBe("pass");
  const isPrivate = { issuer: "CN=Acme CA", certificate: { hasTimestamps: false } };
  expect(evaluate({ ...isPrivate, validityMonths: 12 })).toBe("pass");
  expect(evaluate({ ...isPrivate, validityMonths: 13 })).toBe("fail");
  expect(evaluate({ issuer: "CN=a", subject: "CN=a", validityMonths: 24 })).toBe("fail");
  // Earlier versions did not read the certificate itself.
  expect(evaluate({ issuer: "CN=Acme CA", validityMonths: 24 })).toBe("notApplicable");
});

test("a certificate that Acmebot renews passes every check while its renewal is on time, however short it lives", () => {
  const renewal = (windowEndsInDays: number): Partial<AssetRecord> => ({
    issuer: "CN=R11, O=Let's Encrypt, C=US",
    autoRenew: false,
    notBefore: inDays(-2),
    expiresOn: inDays(4),
    renewal: {
      renewedBy: "acmebot",
      windowEnd: inDays(windowEndsInDays),
      attentionAt: inDays(windowEndsInDays) + 1,
    },
  });
  const failedBy = (change: Partial<AssetRecord>) =>
    ASSET_CHECKS.filter(
      (check) =>
        check.resourceType === "certificate" &&
        !check.source &&
        check.evaluate({ asset: asset("kv", "certificate", "www", change), vaultUsesRbac: true }, context).result ===
          "fail",
    ).map(({ id }) => id);
  expect(failedBy(renewal(2))).toEqual([]);
  expect(failedBy(renewal(-1))).toEqual(["certificate-near-expiry-critical", "certificate-auto-renewal"]);
  const autoRenewal = ASSET_CHECKS.find(({ id }) => id === "certificate-auto-renewal")!;
  const titleFor = (change: Partial<AssetRecord>) => {
    const resource = { asset: asset("kv", "certificate", "www", change), vaultUsesRbac: true };
    const { evidence } = autoRenewal.evaluate(resource, context) as { evidence: string };
    return (autoRenewal.failureTitle as (evidence: string) => string)(evidence);
  };
  expect(titleFor(renewal(-1))).toBe("Automatic renewal of the certificate is late");
  expect(titleFor({ autoRenew: false })).toBe("Certificate is not renewed automatically");
  // Without a renewer, the days until the expiry count, and the check of the issuer fails too.
  expect(failedBy({ ...renewal(2), renewal: undefined })).toEqual([
    "certificate-near-expiry-critical",
    "certificate-issuer",
    "certificate-auto-renewal",
  ]);
  expect(failedBy({ autoRenew: true, issuerName: "Unknown" })).toEqual(["certificate-auto-renewal"]);
});

test("properties that could not be read fail no check", () => {
  const unreadDates = { contentType: "x", expiresOn: undefined, createdOn: undefined, rotationPolicy: undefined };
  const unreadProperties = {
    ...unreadDates,
    keyType: undefined,
    keySize: undefined,
    issuer: undefined,
    validityMonths: undefined,
    autoRenew: undefined,
  };
  for (const check of ASSET_CHECKS.filter(({ id }) => !id.includes("expiry-set"))) {
    const application = { source: check.source, credential: undefined, notBefore: undefined, expiresOn: inDays(90) };
    const resource = asset("kv", check.resourceType, "a", {
      ...unreadProperties,
      ...(check.source && application),
    });
    expect([check.id, check.evaluate({ asset: resource, vaultUsesRbac: true }, context).result]).not.toContain("fail");
  }
  const { diagnostics: _, ...withoutDiagnostics } = vault("kv");
  expect(vaultChecks.find(({ id }) => id === "vault-audit-logging")!.evaluate(withoutDiagnostics).result).toBe(
    "notApplicable",
  );
});

test("an expiry fails only the worst of its checks, and a vault without soft delete fails both checks of recovery", () => {
  const daysUntilExpiry = [-1, 0, 1, 7, 7.5, 30, 30.5];
  const failedChecks = daysUntilExpiry.map((days) => {
    const resource = { asset: asset("kv", "secret", "a", { expiresOn: inDays(days) }), vaultUsesRbac: true };
    const failed = ASSET_CHECKS.filter(
      (check) =>
        check.resourceType === "secret" && !check.source && check.evaluate(resource, context).result === "fail",
    );
    return failed.map(({ id }) => id);
  });
  const [expired, critical, warning] = ["secret-expired", "secret-near-expiry-critical", "secret-near-expiry-warning"];
  expect(failedChecks).toEqual([[expired], [critical], [critical], [critical], [warning], [warning], []]);
  // If the violation of one check becomes worse, it continues as the violation of a successor.
  expect(successorsOf(warning)).toEqual([critical, expired]);
  expect(successorsOf(critical)).toEqual([expired]);

  const failedByVault = (change: Partial<VaultRecord>) =>
    vaultChecks.filter((check) => check.evaluate(vault("kv", change)).result === "fail").map(({ id }) => id);
  // A vault without soft delete also violates Azure's policy for deletion protection. Controls of either check must fail.
  const both = ["vault-soft-delete", "vault-purge-protection"];
  expect(failedByVault({ softDelete: false, purgeProtection: false })).toEqual(both);
  expect(failedByVault({ softDelete: false, purgeProtection: true })).toEqual(both);
  expect(failedByVault({ purgeProtection: false })).toEqual(["vault-purge-protection"]);
  // `vault-recoverable` was a check of an earlier version. Users may still have alerts of its violations.
  expect(successorsOf("vault-recoverable")).toEqual(["vault-soft-delete", "vault-purge-protection"]);
  const successors = [...CHECKS.map(({ id }) => id), "vault-recoverable"].flatMap(successorsOf);
  expect(successors.filter((id) => !CHECKS.some((check) => check.id === id))).toEqual([]);
});

test("no B2C check applies to a policy key without an expiry", () => {
  const policyKey = credential({ kind: "policyKey", of: undefined as never });
  for (const check of ASSET_CHECKS.filter(({ source }) => source === "b2c")) {
    const resource = { ...assetFor(check, { expiresOn: undefined, credential: policyKey }), notBefore: inDays(-900) };
    expect(check.evaluate({ asset: resource, vaultUsesRbac: true }, context).result).toBe("notApplicable");
  }
});

test("the evidence states an expiry as Unix seconds if it is too late for a date", () => {
  const YEAR_9999_END = 253_402_300_799; // 9999-12-31T23:59:59Z in Unix seconds
  const key = asset("kv", "key", "a", { expiresOn: YEAR_9999_END + DAY_SECONDS * 1e9 });
  const resource = { asset: key, vaultUsesRbac: true };
  expect(ASSET_CHECKS.find(({ id }) => id === "key-expired")!.evaluate(resource, context).evidence).toContain(
    "second ",
  );
});

test("the title of a violation states the failure and the policy's number of days", () => {
  const evidence = ({ fails }: { fails: Partial<AssetRecord> }, id: string): string => {
    const check = ASSET_CHECKS.find((candidate) => candidate.id === id)!;
    const resource = { asset: asset("kv", "secret", "one", fails), vaultUsesRbac: true, references: GOOD_REFERENCES };
    return check.evaluate(resource, context).evidence;
  };
  const titleOf = (id: string): string => {
    const { failureTitle } = CHECKS.find((candidate) => candidate.id === id)!;
    return typeof failureTitle === "string" ? failureTitle : failureTitle(evidence(ASSET_FAILURES[id]!, id));
  };
  expect(titleOf("secret-expired")).toBe("Expired secret is still enabled");
  expect(titleOf("secret-near-expiry-critical")).toBe("Secret expires within 7 days");
  expect(titleOf("secret-near-expiry-warning")).toBe("Secret expires within 30 days");
  expect(titleOf("vault-rbac")).toBe("Key vault uses access policies");
  for (const { title, failureTitle } of CHECKS) {
    const text = typeof failureTitle === "string" ? failureTitle : failureTitle("");
    expect(text).not.toBe(title);
    expect(`${title} ${text}`).not.toContain("ExpiryDays");
  }
});

test("codes and IDs of checks are unique", () => {
  expect(new Set(CHECKS.map(({ code }) => code)).size).toBe(CHECKS.length);
  expect(new Set(CHECKS.map(({ id }) => id)).size).toBe(CHECKS.length);
  for (const { id, code } of CHECKS) {
    expect(id).toMatch(/^[a-z0-9]+(-[a-z0-9]+)+$/);
    // Stored rows may still contain 3, the code of a check of an earlier version.
    expect(code).not.toBe(3);
  }
});

test("the texts of checks use the article that fits the next word", () => {
  const texts = CHECKS.flatMap(({ title, rationale, failureTitle }) => [title, rationale, String(failureTitle)]);
  expect(texts.filter((text) => /\ba [aeio]/i.test(text))).toEqual([]);
});
