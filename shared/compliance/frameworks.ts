/** Results by framework and control, computed from the numbers of passed and failed results of each check. */
import type { Check } from "./check.ts";
import { checkOfId } from "./checks/all.ts";
import { type Control, controlsOf, FRAMEWORK_IDS, FRAMEWORKS, type FrameworkId, isOfFramework } from "./controls.ts";
import type { CountedOverview, Counts } from "./overview.ts";
import { countByCheck } from "./overview.ts";
import { computeScore, type Score } from "./score.ts";

export const CONTROL_STATUSES = ["pass", "fail", "notApplicable", "manual"] as const;
type ControlStatus = (typeof CONTROL_STATUSES)[number];

/** A check's results over all resources, and the reason for its mapping to the control. */
export interface CheckResult extends Counts, Pick<Check, "id" | "title" | "severity" | "resourceType"> {
  basis: string;
}

/** The result of a control, with the sums over its checks. */
export interface ControlResult {
  id: string;
  title: string;
  status: ControlStatus;
  /** A requirement of the control that the service can't see. Null if the mapping names none. */
  notAssessed: string | null;
  passed: number;
  failed: number;
  exempted: number;
  checks: CheckResult[];
}

/** The result of a framework with its controls. */
export interface FrameworkResult extends Pick<Score, "score" | "passed" | "failed" | "total"> {
  id: FrameworkId;
  name: string;
  version: string;
  source: string;
  controlsTotal: number;
  controlsByStatus: Record<ControlStatus, number>;
  controls: ControlResult[];
}

/** Returns the results of every framework and its controls. */
export function frameworkResults(overview: CountedOverview): FrameworkResult[] {
  const counts = countByCheck(overview);
  return FRAMEWORK_IDS.map((id) => {
    const controls = controlsOf(id).map((control) => controlResult(control, counts));
    const controlsByStatus = { pass: 0, fail: 0, notApplicable: 0, manual: 0 };
    for (const { status } of controls) controlsByStatus[status]++;
    const { score, passed, failed, total } = computeScore([...counts].filter(([check]) => isOfFramework(check.id, id)));
    const facts = { id, ...FRAMEWORKS[id], score, passed, failed, total };
    return { ...facts, controlsTotal: controls.length, controlsByStatus, controls };
  });
}

function controlResult({ id, title, checks, notAssessed }: Control, counts: ReadonlyMap<Check, Counts>): ControlResult {
  const sum = { passed: 0, failed: 0, exempted: 0 };
  const results = [...checks].map(([checkId, basis]): CheckResult => {
    const check = checkOfId.get(checkId)!;
    const count = counts.get(check)!;
    sum.passed += count.passed;
    sum.failed += count.failed;
    sum.exempted += count.exempted;
    const { severity, resourceType } = check;
    return { id: checkId, title: check.title, severity, resourceType, basis, ...count };
  });
  const status: ControlStatus =
    checks.size === 0 ? "manual" : sum.failed > 0 ? "fail" : sum.passed > 0 ? "pass" : "notApplicable";
  return { id, title, status, notAssessed: notAssessed ?? null, ...sum, checks: results };
}
