import * as z from "zod";
import type { PermissionsCheck } from "./doctor.ts";
import { OUTCOMES } from "./result.ts";

// Schema of the answer of POST /system/permissions/check.

const counts = z.object({
  checked: z.int().meta({ description: "Number of resources that were called.", example: 3 }),
  total: z.int().meta({ description: "Number of resources from which they were chosen.", example: 12 }),
});

const outcome = z.enum(OUTCOMES).meta({
  description:
    "`works`: the call succeeds. `permissionMissing`: the service's identity lacks the permission. `answeredWithBlanks`: the call succeeds, but the answer leaves out what the identity may not read. `unreachable`: no answer, or a firewall denies access. `failed`: another failure. `off`: the feature is not configured or not licensed. `notProven`: reads can't show whether the call would succeed.",
});

export const PermissionsCheckView = z
  .object({
    ok: z.boolean().meta({
      description:
        "False if a required call has the outcome permissionMissing, answeredWithBlanks, unreachable or failed. A call is required if `optional` is false.",
    }),
    checkedAt: z.iso.datetime().meta({ description: "Time of the check, ISO 8601 in UTC." }),
    sample: z
      .object({
        subscriptions: counts.meta({ description: "Watched subscriptions." }),
        vaults: counts.meta({ description: "Vaults of the sampled subscriptions." }),
      })
      .meta({ description: "The watched resources that stand for all others." }),
    calls: z
      .array(
        z.object({
          id: z.string().meta({ description: "Stable name of the call.", example: "keyVault.listSecrets" }),
          feature: z.string().meta({ description: "Feature that needs the call.", example: "Scans: secrets" }),
          call: z.string().meta({ description: "The request.", example: "GET /secrets" }),
          permissions: z.array(z.string()).meta({
            description: "Roles, actions or application permissions that the call needs.",
            example: ["Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
          }),
          optional: z.boolean().meta({
            description: "True if the service works without the permission, or if only some resources need it.",
          }),
          outcome,
          works: z.int().meta({ description: "Number of resources for which the call works.", example: 5 }),
          checked: z.int().meta({ description: "Number of resources for which the call was checked.", example: 5 }),
          findings: z
            .array(
              z.object({
                resource: z.string().meta({ description: "The called resource.", example: "key vault kv-payments" }),
                outcome,
                detail: z.string().nullable().meta({
                  description: "Details of the result. Null if there are none.",
                  example: "The service's identity does not have the required permission.",
                }),
                remedy: z.string().nullable().meta({
                  description: "How to fix it. Null if there is nothing to fix.",
                  example: "Assign the role Key Vault Reader to the service's identity on this vault.",
                }),
                command: z.string().nullable().meta({
                  description: "Command of the Azure CLI that fixes it. Null if there is none.",
                  example:
                    'az role assignment create --assignee-object-id "0d7b6a3e-5c1f-4a8e-9b2d-7f3c6e1a4b58" --role "Key Vault Reader" --scope "/subscriptions/8eab9bca-7137-4f76-a31c-dcc4acd2ff43"',
                }),
              }),
            )
            .meta({ description: "Results that need attention, or that explain how the call was checked." }),
          documentation: z.string().meta({
            description: "Page below docs/, and its section.",
            example: "permissions.md#watched-subscriptions",
          }),
        }),
      )
      .meta({ description: "All outgoing calls of the service, also those of features that are off." }),
  })
  .meta({ id: "PermissionsCheck" });

/** Returns a check in the form of the API. */
export const permissionsCheckView = ({ calls, ...check }: PermissionsCheck): z.infer<typeof PermissionsCheckView> => ({
  ...check,
  calls: calls.map(({ call, findings, ...result }) => ({
    id: call.id,
    feature: call.feature,
    call: call.call,
    permissions: [...call.permissions],
    optional: call.optional ?? false,
    ...result,
    findings: findings.map(({ resource, outcome, detail, remedy, command }) => ({
      resource,
      outcome,
      detail: detail ?? null,
      remedy: remedy ?? null,
      command: command ?? null,
    })),
    documentation: call.page,
  })),
});
