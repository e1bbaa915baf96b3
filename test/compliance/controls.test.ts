// The mapping of checks to the controls of frameworks, and the pages of the documentation generated from it.
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { compliancePages } from "../../infra/build/compliance-page.ts";
import { CHECKS, checkOfId } from "../../shared/compliance/checks/all.ts";
import { TITLES } from "../../shared/compliance/controls/titles.ts";
import { UNMAPPED } from "../../shared/compliance/controls/unmapped.ts";
import {
  controlsOf,
  controlsOfCheck,
  expandIds,
  FRAMEWORK_IDS,
  type FrameworkId,
} from "../../shared/compliance/controls.ts";

/** Returns the IDs of the framework's controls that the check is mapped to. */
const idsOf = (checkId: string, framework: FrameworkId) =>
  controlsOfCheck(checkId)
    .filter((control) => control.framework === framework)
    .map(({ control }) => control);

test("a range of control IDs expands to each ID, at any depth of numbering", () => {
  expect(expandIds("3.6.1, 3.7.5-3.7.8")).toEqual(["3.6.1", "3.7.5", "3.7.6", "3.7.7", "3.7.8"]);
  expect(expandIds("7.2.1-7.2.6, 7.2.5.1")).toEqual(["7.2.1", "7.2.2", "7.2.3", "7.2.4", "7.2.5", "7.2.6", "7.2.5.1"]);
  expect(expandIds("CM-3(6), IA-2")).toEqual(["CM-3(6)", "IA-2"]);
});

test("a check maps to the control IDs of each framework version", () => {
  expect(FRAMEWORK_IDS.filter((id) => id.startsWith("cis")).map((id) => idsOf("key-expiry-set-rbac", id))).toEqual([
    ["8.1"],
    ["3.3.1"],
    ["9.3.1"],
    ["8.3.1"],
    ["8.3.1"],
  ]);
  expect(idsOf("secret-expiry-set-access-policy", "cis-azure-3.0.0")).toEqual(["3.3.4"]);
  expect(idsOf("vault-public-access", "cis-azure-3.0.0")).toEqual([]);
  expect(idsOf("vault-private-endpoint", "cis-azure-4.0.0")).toEqual(["9.3.8"]);
  expect(idsOf("certificate-validity-period", "cis-azure-6.0.0")).toEqual(["8.3.11"]);
  expect(idsOf("key-rotation-policy", "pci-dss-4.0.1")).toHaveLength(12);
  expect(idsOf("vault-soft-delete", "cis-azure-6.0.0")).toEqual(["8.3.5"]);
  expect(idsOf("vault-purge-protection", "cis-azure-6.0.0")).toEqual(["8.3.5"]);
  expect(idsOf("key-expiry-set-rbac", "pci-dss-4.0.1")).toHaveLength(16);
  expect(idsOf("key-rotation-policy", "nist-800-53-r5")).toEqual(["CM-3(6)", "SC-12", "SC-12(2)", "SC-28(3)"]);
  expect(idsOf("vault-rbac", "iso-27001-2022")).toEqual(["5.15", "5.18", "8.2", "8.3"]);
  expect(idsOf("vault-audit-logging", "mcsb-v3")).toEqual(["DP-8", "LT-3"]);
  expect(idsOf("vault-soft-delete", "soc-2")).toEqual(["CC6.1"]);
});

test("every check is mapped to a control, or has a reason why not, but never both", () => {
  for (const { id } of CHECKS) {
    const reason = UNMAPPED[id];
    expect([id, controlsOfCheck(id).length > 0, reason === undefined]).toEqual([
      id,
      reason === undefined,
      reason === undefined,
    ]);
  }
  for (const [id, reason] of Object.entries(UNMAPPED)) {
    expect(checkOfId.has(id), id).toBe(true);
    expect(reason).toMatch(/\.$/);
  }
});

test("every critical check is mapped to a framework", () => {
  const critical = CHECKS.filter(({ severity }) => severity === "critical");
  expect(critical).toHaveLength(8);
  expect(critical.filter(({ id }) => controlsOfCheck(id).length === 0)).toEqual([]);
  expect(idsOf("secret-expired", "pci-dss-4.0.1")).toEqual(["8.6.3"]);
  expect(idsOf("key-expired", "pci-dss-4.0.1")).toEqual(["3.7.4", "3.7.5"]);
  expect(idsOf("certificate-expired", "mcsb-v3")).toEqual(["DP-7"]);
  // CIS only requires that an expiration date is set. An expired asset passes that recommendation.
  for (const cis of FRAMEWORK_IDS.filter((id) => id.startsWith("cis")))
    expect(idsOf("secret-expired", cis)).toEqual([]);
});

test("every control has a title, and each of its checks exists and is mapped with a reason", () => {
  for (const framework of FRAMEWORK_IDS) {
    for (const { id, title, checks } of controlsOf(framework)) {
      expect(title, `${framework} ${id}`).not.toBe("");
      for (const [check, basis] of checks) {
        expect(checkOfId.has(check), check).toBe(true);
        expect(basis).toMatch(/\.$/);
      }
    }
  }
  for (const [framework, titles] of Object.entries(TITLES)) {
    const ids = controlsOf(framework as FrameworkId).map(({ id }) => id);
    expect(Object.keys(titles).filter((id) => !ids.includes(id))).toEqual([]);
  }
});

test("a control without a check is listed as manual", () => {
  const manual = controlsOf("cis-azure-5.0.0")
    .filter(({ checks }) => checks.size === 0)
    .map(({ id }) => id);
  expect(manual).toEqual(["5.14", "8.1.8.1", "8.3.10"]);
});

test.each(Object.entries(compliancePages()))(
  "docs/%s matches the code; npm run compliance-page writes it",
  (name, text) => {
    const page = readFileSync(path.resolve(import.meta.dirname, "../../docs", name), "utf8");
    expect(page, "Run npm run compliance-page.").toBe(text);
  },
);

test("docs/compliance.md contains no long sentence twice", () => {
  // Sentences of more than 40 characters, outside of and inside table cells.
  const sentences = compliancePages()["compliance.md"]!.match(/[A-Z][^.|]{40,}\./g)!;
  expect(sentences.length).toBeGreaterThan(30);
  expect(sentences.filter((sentence, index) => sentences.indexOf(sentence) !== index)).toEqual([]);
});

/*
 * Violations are stored in the order of the checks. A page of a framework's violations needs one query for each range of adjacent
 * checks that belong to the framework.
 */
test("the asset checks of a framework form at most 13 ranges of adjacent checks", () => {
  const assetChecks = CHECKS.filter(({ resourceType }) => resourceType !== "vault");
  for (const framework of FRAMEWORK_IDS) {
    const belongs = assetChecks.map(({ id }) => idsOf(id, framework).length > 0);
    const ranges = belongs.filter((isMember, index) => isMember && !belongs[index - 1]).length;
    expect([framework, ranges <= 13]).toEqual([framework, true]);
  }
});
