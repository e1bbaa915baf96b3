// Limits of Bicep parameters: the decorators that reject values.

import { allowedValues } from "../bicep/file-scope.ts";
import type { Parameter } from "../bicep/parse.ts";
import type { Expression } from "../expression.ts";
import type { Value } from "./evaluate.ts";

/** Decorators that limit a value: whether a value exceeds the limit. */
const LIMITS: Record<string, (value: Value, limit: number, decorator: Expression) => boolean> = {
  minValue: (value, limit) => Number(value) < limit,
  maxValue: (value, limit) => Number(value) > limit,
  minLength: (value, limit) => lengthOf(value) < limit,
  maxLength: (value, limit) => lengthOf(value) > limit,
  allowed: (value, _, decorator) => !(allowedValues(decorator) ?? []).includes(value as string),
};

const lengthOf = (value: Value): number => (typeof value === "string" ? value.length : Object.keys(value ?? {}).length);

/** Returns whether a parameter has a limit. */
export const isLimited = ({ decorators }: Parameter): boolean =>
  decorators.some((one) => one.kind === "call" && LIMITS[one.name]);

/** Returns the names of the decorators whose limit a value exceeds. */
export const exceededLimits = ({ decorators }: Parameter, value: Value): string[] =>
  decorators.flatMap((decorator) => {
    if (decorator.kind !== "call") return [];
    const [limit] = decorator.args;
    const exceeds = LIMITS[decorator.name]?.(value, limit?.kind === "literal" ? Number(limit.value) : 0, decorator);
    return exceeds ? [`@${decorator.name}`] : [];
  });
