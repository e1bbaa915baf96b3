import * as z from "zod";
import { DEPENDENCIES } from "./health.ts";

/** Schemas of the service's health and its API description. */

export const Health = z
  .object({
    status: z.enum(["healthy", "degraded"]).meta({
      description:
        "`degraded`: a dependency does not respond, a stored row can't be read, or one of the numbers below is unknown.",
    }),
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
    unreadableRows: z
      .object({
        listed: z.int().min(0).meta({ description: "Number of rows that the audit log names.", example: 0 }),
        more: z.boolean().meta({ description: "Whether further rows were found within the last two hours." }),
      })
      .optional()
      .meta({
        description:
          "Rows in the service's own tables that can't be read. Only with deep=true. Absent if the tables do not respond.",
      }),
    heldDeliveries: z.int().min(0).optional().meta({
      description:
        "Number of alert deliveries that are held after a restore until an administrator sends or drops them with `npm run store`. Only with deep=true. Absent if the tables do not respond.",
      example: 0,
    }),
  })
  .meta({ id: "Health" });

export const OpenApiDocument = z
  .looseObject({ openapi: z.string().meta({ description: "OpenAPI version.", example: "3.1.0" }) })
  .meta({ id: "OpenApiDocument" });
