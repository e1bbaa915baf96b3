import { expect, test } from "vitest";
import { CHECKS, checkOfId } from "../../shared/compliance/checks/all.ts";
import {
  CONTROLS,
  controlsOfCheck,
  expandIds,
  FRAMEWORK_IDS,
  type FrameworkId,
} from "../../shared/compliance/controls.ts";

const idsOf = (checkId: string, framework: FrameworkId) =>
  controlsOfCheck(checkId)
    .filter((one) => one.framework === framework)
    .map((one) => one.control);

test("a range of ids stands for each of them, whatever the depth", () => {
  expect(expandIds("3.6.1, 3.7.5-3.7.8")).toEqual(["3.6.1", "3.7.5", "3.7.6", "3.7.7", "3.7.8"]);
  expect(expandIds("7.2.1-7.2.6, 7.2.5.1")).toEqual(["7.2.1", "7.2.2", "7.2.3", "7.2.4", "7.2.5", "7.2.6", "7.2.5.1"]);
  expect(expandIds("CM-3(6), IA-2")).toEqual(["CM-3(6)", "IA-2"]);
});

test("the control of a check is the one its framework's version gives it", () => {
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
  expect(idsOf("key-rotation-policy", "pci-dss-4.0.1")).toHaveLength(11);
  expect(idsOf("key-expiry-set-rbac", "pci-dss-4.0.1")).toHaveLength(16);
  expect(idsOf("key-rotation-policy", "nist-800-53-r5")).toEqual(["CM-3(6)", "SC-12", "SC-12(2)", "SC-28(3)"]);
  expect(idsOf("vault-rbac", "iso-27001-2022")).toEqual(["5.15", "5.18", "8.2", "8.3"]);
  expect(idsOf("vault-audit-logging", "mcsb-v3")).toEqual(["DP-8", "LT-3"]);
  expect(idsOf("vault-soft-delete", "soc-2")).toEqual(["CC6.1"]);
});

test("a check that no source maps has no control", () => {
  for (const id of [
    "secret-expired",
    "secret-content-type",
    "certificate-issuer",
    "certificate-rsa-size",
    "vault-reference-resolved",
  ]) {
    expect(controlsOfCheck(id)).toEqual([]);
  }
});

test("every mapped check exists, and what only a person can tell is there without one", () => {
  for (const id of FRAMEWORK_IDS) {
    for (const { checks } of CONTROLS[id]) for (const check of checks) expect(checkOfId.has(check)).toBe(true);
  }
  const manual = CONTROLS["cis-azure-5.0.0"].filter(({ checks }) => checks.length === 0).map(({ id }) => id);
  expect(manual).toEqual(["5.14", "8.1.8.1", "8.3.10"]);
});

test("the asset checks of a framework lie in at most six stretches, however many others fail between", () => {
  const assetChecks = CHECKS.filter(({ resourceType }) => resourceType !== "vault");
  for (const framework of FRAMEWORK_IDS) {
    const mine = assetChecks.map(({ id }) => idsOf(id, framework).length > 0);
    const begins = mine.filter((of, at) => of && !mine[at - 1]).length;
    expect([framework, begins <= 6]).toEqual([framework, true]);
  }
});
