import * as z from "zod";
import { PRODUCT } from "../product.ts";
import { DEPENDENCIES } from "./health.ts";

/** Schemas of the service's health and its API description. */

export const Health = z
  .object({
    status: z.enum(["healthy", "degraded"]).meta({
      description:
        "`degraded`: a dependency does not respond, a stored row can't be read, or the number in `unreadableRows` or `heldDeliveries` is unknown.",
    }),
    version: z.string().optional().meta({
      description: "Version of the service. Only with deep=true.",
      example: "1.0.0",
    }),
    commit: z.string().nullish().meta({
      description:
        "Git commit from which the service was built. Null if its sources differed from a commit. Only with deep=true.",
      example: "6da79ba2f0c14a3b8f4f0f6f3c1a2b3c4d5e6f70",
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
        listed: z.int().min(0).meta({
          description: "Number of rows that have an audit entry of their own, at most 100.",
          example: 0,
        }),
        more: z.boolean().meta({ description: "Whether rows beyond those were found within the last two hours." }),
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
    signedRows: z
      .object({
        status: z.enum(["off", "starting", "signed", "unknown"]).meta({
          description:
            "`signed`: changes of users, single sign-on, settings and alert rules by another program are detected. `off`: not detected, because the service has no key vault. `starting`: until about 15 minutes after an upgrade from a version that did not sign these rows. `unknown`: the key vault does not respond.",
        }),
        since: z.string().optional().meta({
          description: "Time since which the rows are signed, ISO 8601.",
          example: "2026-11-27T06:00:00.000Z",
        }),
        detail: z.string().optional().meta({
          description:
            "Why the status is unknown. With `signed`: names other storage accounts whose rows the same key signs, because their deployments share the key vault.",
          example: "Could not read a secret (the service's own key vault).",
        }),
      })
      .optional()
      .meta({ description: "Whether the rows that decide who may do what are signed. Only with deep=true." }),
  })
  .meta({ id: "Health" });

export const OpenApiDocument = z
  .looseObject({ openapi: z.string().meta({ description: "OpenAPI version.", example: "3.1.0" }) })
  .meta({ id: "OpenApiDocument" });

export const AsyncApiDocument = z
  .looseObject({ asyncapi: z.string().meta({ description: "AsyncAPI version.", example: "3.0.0" }) })
  .meta({ id: "AsyncApiDocument" });

export const ProtectedResource = z
  .object({
    resource: z.string().meta({
      description: "Address of the MCP server.",
      example: "https://lifecycle.example.com/mcp",
    }),
    resource_name: z.string().meta({ description: "Name of this service.", example: PRODUCT }),
    bearer_methods_supported: z.array(z.string()).meta({ description: "How a token is sent.", example: ["header"] }),
    resource_documentation: z.string().meta({
      description: "Address of the documentation.",
      example: "https://lifecycle.example.com/llms.txt",
    }),
  })
  .meta({ id: "ProtectedResource" });
