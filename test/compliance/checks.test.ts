import { describe, expect, test } from "vitest";
import type { AssetCheck, Context, ReferenceFacts } from "../../shared/compliance/check.ts";
import { ASSET_CHECKS, CHECKS, successorsOf } from "../../shared/compliance/checks/all.ts";
import { vaultChecks } from "../../shared/compliance/checks/vault.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { VaultRecord } from "../../shared/inventory/vault.ts";
import { asset, context, credential, DAY, inDays, vault } from "./compliance-fixture.ts";

/** Changes to the good resource that make each check fail. Without changes it passes everything. */
const VAULT_FAILURES: Record<string, Partial<VaultRecord>> = {
  "vault-soft-delete": { softDelete: false },
  "vault-purge-protection": { purgeProtection: false },
  "vault-rbac": { rbacAuthorization: false },
  "vault-public-access": { publicNetworkAccess: "Enabled" },
  "vault-firewall": { publicNetworkAccess: "Enabled", networkDefaultAction: "Allow" },
  "vault-private-endpoint": { privateEndpoints: 0 },
  "vault-audit-logging": { diagnostics: [{ name: "metrics", auditEvents: false }] },
};
/** References to the good resource, and to one that fails the checks of references. */
const use = { unused: false, evidence: "A log has it read within 90 days." };
const GOOD_REFERENCES: ReferenceFacts = { resolved: 2, unresolved: 0, examples: [], use };
const BAD_REFERENCES: ReferenceFacts = {
  resolved: 9,
  unresolved: 1,
  examples: ["app (webApp), A: SecretNotFound"],
  use: { unused: true, evidence: "No log has it read after 2026-01-01." },
};
const referencesFor = (id: string) =>
  id.endsWith("-reference-resolved") || id === "secret-unused" ? BAD_REFERENCES : GOOD_REFERENCES;
const EC = { keyType: "EC", keySize: undefined };
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
  "key-curve": { fails: { ...EC, keyCurve: "P-256K" }, passes: { ...EC, keyCurve: "P-384" } },
  "key-rotation-policy": {
    fails: { rotationPolicy: { lifetimeActions: [{ action: "Notify", timeBeforeExpiry: "P30D" }] } },
    passes: { rotationPolicy: { lifetimeActions: [{ action: "rotate", timeBeforeExpiry: "P30D" }] } },
  },
  "certificate-expired": { fails: { expiresOn: inDays(-400) } },
  "certificate-near-expiry-warning": { fails: { expiresOn: inDays(8) } },
  "certificate-near-expiry-critical": { fails: { expiresOn: inDays(6) } },
  "certificate-validity-period": { fails: { validityMonths: 13 } },
  "certificate-issuer": {
    fails: { issuer: "CN=internal.example" },
    passes: { issuer: "CN=AlphaSSL, O=GlobalSign nv-sa" },
  },
  "certificate-auto-renewal": { fails: { autoRenew: false } },
  "certificate-rsa-size": { fails: { keySize: 1024 } },
  "certificate-curve": { fails: { ...EC, keyCurve: "P-256K" }, passes: { ...EC, keyCurve: "P-521" } },
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

describe("every check has a resource that fails it and one that passes", () => {
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

test("a result that depends on time changes at its `changesAt`, and not before", () => {
  const lifetimes: Partial<AssetRecord>[] = [
    { expiresOn: inDays(45), createdOn: inDays(-700) },
    { expiresOn: inDays(20), notBefore: inDays(-720) },
    { expiresOn: inDays(3), createdOn: inDays(-10) },
  ];
  let changes = 0;
  for (const check of ASSET_CHECKS) {
    for (const lifetime of lifetimes) {
      const certificatesUntil = [inDays(2), inDays(30)];
      const of = check.source === "entra" && { credential: credential({ certificatesUntil }) };
      const resource = { asset: assetFor(check, { ...lifetime, ...of }), vaultUsesRbac: true };
      const at = (now: number): Context => ({ ...context, now });
      const { result, changesAt } = check.evaluate(resource, context);
      if (!check.timed) expect(changesAt).toBeUndefined();
      if (changesAt === undefined) continue;
      expect(changesAt * 1000).toBeGreaterThan(context.now);
      expect(check.evaluate(resource, at(changesAt * 1000 - 1001)).result).toBe(result);
      expect(check.evaluate(resource, at(changesAt * 1000)).result).not.toBe(result);
      changes++;
    }
  }
  expect(changes).toBeGreaterThan(15);
});

test("data that could not be read fails no check", () => {
  const bare = { contentType: "x", expiresOn: undefined, createdOn: undefined, rotationPolicy: undefined };
  const unread = { ...bare, keyType: undefined, keySize: undefined, issuer: undefined, validityMonths: undefined };
  for (const check of ASSET_CHECKS.filter(({ id }) => !id.includes("expiry-set"))) {
    const bareCredential = { source: check.source, credential: undefined, notBefore: undefined };
    const known = check.source ? { expiresOn: inDays(90), ...bareCredential } : {};
    const resource = asset("kv", check.resourceType, "a", { ...unread, autoRenew: undefined, ...known });
    expect([check.id, check.evaluate({ asset: resource, vaultUsesRbac: true }, context).result]).not.toContain("fail");
  }
  const { diagnostics: _, ...unseen } = vault("kv");
  expect(vaultChecks.find(({ id }) => id === "vault-audit-logging")!.evaluate(unseen).result).toBe("notApplicable");
});

test("one finding is one violation: of an expiry, whatever the remaining time, and of a vault without recovery", () => {
  const far = [-1, 0, 1, 7, 7.5, 30, 30.5];
  const said = far.map((days) => {
    const resource = { asset: asset("kv", "secret", "a", { expiresOn: inDays(days) }), vaultUsesRbac: true };
    const fails = ASSET_CHECKS.filter(
      (check) =>
        check.resourceType === "secret" && !check.source && check.evaluate(resource, context).result === "fail",
    );
    return fails.map(({ id }) => id);
  });
  const [expired, critical, warning] = ["secret-expired", "secret-near-expiry-critical", "secret-near-expiry-warning"];
  expect(said).toEqual([[expired], [critical], [critical], [critical], [warning], [warning], []]);
  // As it gets worse, the later check continues the violation of the earlier one.
  expect(successorsOf(warning)).toEqual([critical, expired]);
  expect(successorsOf(critical)).toEqual([expired]);

  const failing = (change: Partial<VaultRecord>) =>
    vaultChecks.filter((check) => check.evaluate(vault("kv", change)).result === "fail").map(({ id }) => id);
  expect(failing({ softDelete: false, purgeProtection: false })).toEqual(["vault-soft-delete"]);
  expect(failing({ purgeProtection: false })).toEqual(["vault-purge-protection"]);
  expect(successorsOf("vault-purge-protection")).toEqual(["vault-soft-delete"]);
  // A check of an earlier version, of which users may have been notified.
  expect(successorsOf("vault-recoverable")).toEqual(["vault-soft-delete", "vault-purge-protection"]);
  const all = [...CHECKS.map(({ id }) => id), "vault-recoverable"].flatMap(successorsOf);
  expect(all.filter((id) => !CHECKS.some((check) => check.id === id))).toEqual([]);
});

test("a B2C credential without a known expiry fails no check that requires one", () => {
  const policyKey = credential({ kind: "policyKey", of: undefined as never });
  for (const check of ASSET_CHECKS.filter(({ source }) => source === "b2c")) {
    const resource = { ...assetFor(check, { expiresOn: undefined, credential: policyKey }), notBefore: inDays(-900) };
    expect(check.evaluate({ asset: resource, vaultUsesRbac: true }, context).result).toBe("notApplicable");
  }
});

test("an expiry outside of the calendar is valid evidence", () => {
  const resource = { asset: asset("kv", "key", "a", { expiresOn: 253_402_300_799 + DAY * 1e9 }), vaultUsesRbac: true };
  expect(ASSET_CHECKS.find(({ id }) => id === "key-expired")!.evaluate(resource, context).evidence).toContain(
    "second ",
  );
});

test("the title of a violation states the failure, with the policy's days", () => {
  const evidence = ({ fails }: { fails: Partial<AssetRecord> }, id: string): string => {
    const check = ASSET_CHECKS.find((one) => one.id === id)!;
    const resource = { asset: asset("kv", "secret", "one", fails), vaultUsesRbac: true, references: GOOD_REFERENCES };
    return check.evaluate(resource, context).evidence;
  };
  const titleOf = (id: string): string => {
    const { failureTitle } = CHECKS.find((one) => one.id === id)!;
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
    // The code of a check of an earlier version, whose rows may still exist.
    expect(code).not.toBe(3);
  }
});
