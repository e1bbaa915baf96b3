import * as z from "zod";

/** Returns the schema of `true` or `false` in a query, whose values are text. The API description has a boolean. */
export const queryBoolean = () =>
  z
    .enum(["true", "false"])
    .transform((value) => value === "true")
    .meta({ override: { type: "boolean", enum: undefined } });
