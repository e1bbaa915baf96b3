import * as z from "zod";
import { DEPENDENCIES } from "./health.ts";

/** What the service says of itself. */

export const Health = z
  .object({
    status: z.enum(["healthy", "degraded"]).meta({ description: "`degraded`: a dependency does not answer." }),
    dependencies: z
      .array(
        z.object({
          name: z.enum(DEPENDENCIES),
          status: z.enum(["healthy", "unhealthy"]).meta({ description: "Whether it answers." }),
          detail: z.string().optional(),
          milliseconds: z.int().meta({ description: "How long it took to answer." }),
        }),
      )
      .optional()
      .meta({ description: "With deep=true only." }),
  })
  .meta({ id: "Health" });

export const OpenApiDocument = z
  .looseObject({ openapi: z.string().meta({ description: "The version of OpenAPI.", example: "3.1.0" }) })
  .meta({ id: "OpenApiDocument" });
