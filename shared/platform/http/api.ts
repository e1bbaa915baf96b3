import * as z from "zod";
import { DEPENDENCIES } from "./health.ts";

/** Schemas of the service's health and its API description. */

export const Health = z
  .object({
    status: z.enum(["healthy", "degraded"]).meta({ description: "`degraded`: a dependency does not respond." }),
    dependencies: z
      .array(
        z.object({
          name: z.enum(DEPENDENCIES),
          status: z.enum(["healthy", "unhealthy"]).meta({ description: "Whether the dependency responds." }),
          detail: z.string().optional(),
          milliseconds: z.int().meta({ description: "Response time in milliseconds." }),
        }),
      )
      .optional()
      .meta({ description: "Only with deep=true." }),
  })
  .meta({ id: "Health" });

export const OpenApiDocument = z
  .looseObject({ openapi: z.string().meta({ description: "OpenAPI version.", example: "3.1.0" }) })
  .meta({ id: "OpenApiDocument" });
