/**
 * Maps checks to the controls of frameworks, from the files in controls/. A check maps to a control because a benchmark
 * recommends the same (cis.ts), because Microsoft's policy sets say so (policies.ts), or because the framework's text requires
 * it (text-mappings.ts and more-text-mappings.ts). not-assessed.ts has what no check can decide. For checks without a control, unmapped.ts contains the reason. docs/compliance.md lists all mappings.
 */
import { CIS_RECOMMENDATIONS, CIS_VERSIONS } from "./controls/cis.ts";
import { FRAMEWORK_IDS, type FrameworkId, type Mapping } from "./controls/frameworks.ts";
import { MORE_TEXT_MAPPINGS } from "./controls/more-text-mappings.ts";
import { NOT_ASSESSED } from "./controls/not-assessed.ts";
import { POLICIES } from "./controls/policies.ts";
import { TEXT_MAPPINGS } from "./controls/text-mappings.ts";
import { TITLES } from "./controls/titles.ts";

export { FRAMEWORK_IDS, FRAMEWORKS, type FrameworkId } from "./controls/frameworks.ts";

/** Expands `3.7.5-3.7.8, 4.1` to five IDs: a range counts up the last number. */
export function expandIds(text: string): string[] {
  return text.split(", ").flatMap((part) => {
    const range = /^((?:\d+\.)+)(\d+)-\1(\d+)$/.exec(part);
    if (!range) return [part];
    const [, stem, first, last] = range;
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, index) => `${stem}${Number(first) + index}`);
  });
}

/** A control of a framework with its checks. */
export interface Control {
  id: string;
  title: string;
  /** IDs of checks with the reason for the mapping. Empty if the control must be assessed manually. */
  checks: Map<string, string>;
  /** A requirement of the control that the service can't see. Undefined if the mapping names none. */
  notAssessed?: string;
}

/** Cache of the mappings. Computed on first use, because it would take a tenth of the start-up time. */
const CONTROLS_CACHE = new Map<FrameworkId, readonly Control[]>();

/** Returns the controls of a framework that this service can assess or list, in the order of their numbers. */
export function controlsOf(framework: FrameworkId): readonly Control[] {
  const cached = CONTROLS_CACHE.get(framework);
  if (cached) return cached;
  // The index of the benchmark's version in each recommendation's `ids`. -1 for other frameworks.
  const version = (CIS_VERSIONS as readonly FrameworkId[]).indexOf(framework);
  const unsorted = version >= 0 ? recommendationsOf(version) : mappedControlsOf(framework as keyof typeof TITLES);
  // One collator for all comparisons: `localeCompare` with options creates one per call, which takes longer than the
  // comparison.
  const byNumber = new Intl.Collator("en", { numeric: true }).compare;
  const controls = unsorted.sort((a, b) => byNumber(a.id, b.id));
  CONTROLS_CACHE.set(framework, controls);
  return controls;
}

function recommendationsOf(version: number): Control[] {
  return CIS_RECOMMENDATIONS.filter(({ ids }) => ids[version] !== "-").map(({ title, ids, checks }) => {
    const basis = `The benchmark's recommendation "${title}".`;
    return { id: ids[version]!, title, checks: new Map(checks.map((check) => [check, basis])) };
  });
}

function mappedControlsOf(framework: keyof typeof TITLES): Control[] {
  const controls = new Map<string, Control>();
  const add = (id: string, { checks, basis }: Mapping) => {
    const control = controls.get(id) ?? { id, title: TITLES[framework][id] ?? "", checks: new Map() };
    // Mappings of Microsoft's sets come first and are not overwritten.
    for (const check of checks) if (!control.checks.has(check)) control.checks.set(check, basis);
    controls.set(id, control);
  };
  for (const mapping of [...POLICIES, ...TEXT_MAPPINGS, ...MORE_TEXT_MAPPINGS]) {
    const ids = mapping.controls[framework];
    if (ids) for (const id of expandIds(ids)) add(id, mapping);
  }
  for (const { control: id, reason } of NOT_ASSESSED.filter((one) => one.framework === framework)) {
    const control = controls.get(id) ?? { id, title: TITLES[framework][id] ?? "", checks: new Map() };
    controls.set(id, { ...control, notAssessed: reason });
  }
  return [...controls.values()];
}

/** A control to which a check is mapped. */
export interface ControlOfCheck {
  framework: FrameworkId;
  control: string;
  basis: string;
}

/** Returns the controls of one check in all frameworks. */
export function controlsOfCheck(checkId: string): readonly ControlOfCheck[] {
  const cached = CONTROLS_OF_CHECK_CACHE.get(checkId);
  if (cached) return cached;
  const controls = FRAMEWORK_IDS.flatMap((framework) =>
    controlsOf(framework).flatMap(({ id, checks }) => {
      const basis = checks.get(checkId);
      return basis === undefined ? [] : [{ framework, control: id, basis }];
    }),
  );
  CONTROLS_OF_CHECK_CACHE.set(checkId, controls);
  return controls;
}

const CONTROLS_OF_CHECK_CACHE = new Map<string, readonly ControlOfCheck[]>();

export const isOfFramework = (checkId: string, framework: FrameworkId): boolean =>
  controlsOfCheck(checkId).some((control) => control.framework === framework);
