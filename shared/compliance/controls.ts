import { CIS_RECOMMENDATIONS, CIS_VERSIONS } from "./controls/cis.ts";
import { FRAMEWORK_IDS, type FrameworkId, type Mapping } from "./controls/frameworks.ts";
import { POLICIES } from "./controls/policies.ts";
import { TEXTS } from "./controls/texts.ts";
import { TITLES } from "./controls/titles.ts";

export { FRAMEWORK_IDS, FRAMEWORKS, type FrameworkId } from "./controls/frameworks.ts";

/**
 * Which control of which framework each check speaks to, put together from the files of controls/: a check has a control
 * because a benchmark recommends the same (cis.ts), because Microsoft's own policy sets say so (policies.ts), or because the
 * framework's text asks for it (texts.ts); else unmapped.ts says why it has none. docs/compliance.md shows it all.
 */

/** `3.7.5-3.7.8, 4.1` as five ids: a range counts up the last number. */
export function expandIds(text: string): string[] {
  return text.split(", ").flatMap((part) => {
    const range = /^((?:\d+\.)+)(\d+)-\1(\d+)$/.exec(part);
    if (!range) return [part];
    const [, stem, first, last] = range;
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, at) => `${stem}${Number(first) + at}`);
  });
}

export interface Control {
  id: string;
  title: string;
  /** Ids of checks, each with why it speaks to the control; none where only a person can tell. */
  checks: Map<string, string>;
}

/** What was put together. Not at the start, of which it would be a tenth. */
const CONTROLS = new Map<FrameworkId, readonly Control[]>();

/** A framework's controls that this service can say something of, in the order of their numbers. */
export function controlsOf(framework: FrameworkId): readonly Control[] {
  const known = CONTROLS.get(framework);
  if (known) return known;
  const version = (CIS_VERSIONS as readonly FrameworkId[]).indexOf(framework);
  const found = version >= 0 ? recommendationsOf(version) : mappedControlsOf(framework as keyof typeof TITLES);
  // One for all comparisons: each call of `localeCompare` with options makes another, which takes longer than to compare.
  const byNumber = new Intl.Collator("en", { numeric: true }).compare;
  const controls = found.sort((a, b) => byNumber(a.id, b.id));
  CONTROLS.set(framework, controls);
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
    // What Microsoft's sets say comes first and stands.
    for (const check of checks) if (!control.checks.has(check)) control.checks.set(check, basis);
    controls.set(id, control);
  };
  for (const mapping of [...POLICIES, ...TEXTS]) {
    const ids = mapping.controls[framework];
    if (ids) for (const id of expandIds(ids)) add(id, mapping);
  }
  return [...controls.values()];
}

/** A control that a check speaks to. */
export interface ControlOfCheck {
  framework: FrameworkId;
  control: string;
  basis: string;
}

/** The controls one check speaks to, over all frameworks. */
export function controlsOfCheck(checkId: string): readonly ControlOfCheck[] {
  const known = BY_CHECK.get(checkId);
  if (known) return known;
  const controls = FRAMEWORK_IDS.flatMap((framework) =>
    controlsOf(framework).flatMap(({ id, checks }) => {
      const basis = checks.get(checkId);
      return basis === undefined ? [] : [{ framework, control: id, basis }];
    }),
  );
  BY_CHECK.set(checkId, controls);
  return controls;
}

const BY_CHECK = new Map<string, readonly ControlOfCheck[]>();

export const isOfFramework = (checkId: string, framework: FrameworkId): boolean =>
  controlsOfCheck(checkId).some((control) => control.framework === framework);
