import * as z from "zod";
import type { Route } from "./calls.ts";

/** The members of the resource manager's answers that are read here. https://learn.microsoft.com/rest/api/azure/ */

const text = z.string().nullish();
const flag = z.boolean().nullish();

const subscription = z.object({ subscriptionId: z.string(), displayName: text, state: text, tenantId: text });
const subscriptionPage = z.object({ value: z.array(subscription), nextLink: text });

const vaultPage = z.object({
  value: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      location: text,
      tags: z.record(z.string(), z.unknown()).nullish(),
      systemData: z.object({ createdAt: text, lastModifiedAt: text }).nullish(),
      properties: z.object({
        tenantId: text,
        sku: z.object({ name: text }).nullish(),
        vaultUri: z.string(),
        enableSoftDelete: flag,
        softDeleteRetentionInDays: z.number().nullish(),
        enablePurgeProtection: flag,
        enableRbacAuthorization: flag,
        publicNetworkAccess: text,
        accessPolicies: z.array(z.object({ permissions: z.object({}).nullish() })).nullish(),
        networkAcls: z
          .object({
            defaultAction: text,
            ipRules: z.array(z.object({})).nullish(),
            virtualNetworkRules: z.array(z.object({})).nullish(),
          })
          .nullish(),
        privateEndpointConnections: z
          .array(
            z.object({
              properties: z
                .object({ privateLinkServiceConnectionState: z.object({ status: text }).nullish() })
                .nullish(),
            }),
          )
          .nullish(),
      }),
    }),
  ),
  nextLink: text,
});

const logSettings = z
  .array(
    z.object({
      category: text,
      categoryGroup: text,
      enabled: flag,
      retentionPolicy: z.object({ enabled: flag, days: z.number().nullish() }).nullish(),
    }),
  )
  .nullish();

export const diagnosticSettingsAnswer = z.object({
  value: z.array(
    z.object({
      name: z.string(),
      properties: z.object({
        logs: logSettings,
        metrics: logSettings,
        workspaceId: text,
        storageAccountId: text,
        eventHubAuthorizationRuleId: text,
        marketplacePartnerId: text,
      }),
    }),
  ),
});

const READER = "the role Reader on the subscription";

/** `/subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>` */
const VAULT_ID =
  "/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\\.KeyVault/vaults/([0-9A-Za-z-]+)";
export const VAULT_ID_PATTERN = new RegExp(`^${VAULT_ID}$`, "i");

const ROUTES: {
  path: RegExp;
  operation: string;
  resource(name: string): string;
  answer: z.ZodType;
  paged?: boolean;
}[] = [
  {
    path: /^\/subscriptions$/i,
    operation: "list subscriptions",
    resource: () => "the resource manager",
    answer: subscriptionPage,
    paged: true,
  },
  {
    path: /^\/subscriptions\/([^/]+)$/i,
    operation: "read the subscription",
    resource: (id) => `subscription ${id}`,
    answer: subscription,
  },
  {
    path: /^\/subscriptions\/([^/]+)\/providers\/Microsoft\.KeyVault\/vaults$/i,
    operation: "list vaults",
    resource: (id) => `subscription ${id}`,
    answer: vaultPage,
    paged: true,
  },
  {
    path: new RegExp(`^${VAULT_ID}/providers/Microsoft\\.Insights/diagnosticSettings$`, "i"),
    operation: "read the diagnostic settings",
    resource: (name) => `key vault ${name}`,
    answer: diagnosticSettingsAnswer,
  },
];

export function resourceManagerRoute(path: string): Route | undefined {
  for (const { path: pattern, operation, resource, answer, paged = false } of ROUTES) {
    const match = pattern.exec(path.replace(/\/$/, ""));
    if (match) return { target: { operation, resource: resource(match[1] ?? ""), grant: READER }, answer, paged };
  }
  return undefined;
}
