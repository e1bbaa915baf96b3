import * as z from "zod";

/**
 * Returns the schema of a whole number in a query, whose values are text.
 *
 * @param fallback - Value if the parameter is omitted, for the API description. Undefined if there is none.
 * @param hint - Follows the message about the maximum.
 */
export const wholeNumber = (minimum: number, maximum: number, fallback?: number, hint = "") =>
  z
    .string()
    .regex(/^\d{1,9}$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(minimum).max(maximum, `must be at most ${maximum}${hint}`))
    .meta({ override: { type: "integer", pattern: undefined, minimum, maximum, default: fallback } });
