import * as z from "zod";
import { undocumented } from "./calls.ts";

/**
 * The members of the resource manager's answers that are read here; the others are not looked at.
 * https://learn.microsoft.com/rest/api/azure/
 */

/** Longer than any text of these; one beyond it would not fit a row. */
const text = z.string().max(4096).nullish();
const flag = z.boolean().nullish();

/** A subscription's id, which becomes part of addresses and of storage keys. */
const SUBSCRIPTION_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export const subscriptionAnswer = z.object({
  subscriptionId: z.string().regex(SUBSCRIPTION_ID),
  displayName: text,
  state: text,
  tenantId: text,
});

/** `/subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>` */
const VAULT_ID =
  /^\/subscriptions\/[0-9a-f-]{36}\/resourceGroups\/[^/]+\/providers\/Microsoft\.KeyVault\/vaults\/[0-9A-Za-z-]+$/i;

/** A vault's name, which becomes part of storage keys. */
const vaultName = z.string().regex(/^[0-9A-Za-z-]{1,127}$/);

export const vaultAnswer = z.object({
  id: z.string().max(1024).regex(VAULT_ID),
  name: vaultName,
  location: text,
  /** At most 50 of 512 and 256 characters: https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources */
  tags: z
    .record(z.string(), z.unknown())
    .refine((tags) => JSON.stringify(tags).length <= 40_000)
    .nullish(),
  systemData: z.object({ createdAt: text, lastModifiedAt: text }).nullish(),
  properties: z.object({
    tenantId: text,
    sku: z.object({ name: z.string().max(64) }),
    vaultUri: z.string().max(512),
    enableSoftDelete: flag,
    softDeleteRetentionInDays: z.int().nullish(),
    enablePurgeProtection: flag,
    enableRbacAuthorization: flag,
    publicNetworkAccess: text,
    networkAcls: z.object({ defaultAction: text }).nullish(),
    privateEndpointConnections: z
      .array(
        z.object({
          properties: z.object({ privateLinkServiceConnectionState: z.object({ status: text }).nullish() }).nullish(),
        }),
      )
      .nullish(),
  }),
});
export type AnsweredVault = z.infer<typeof vaultAnswer>;
export type AnsweredSubscription = z.infer<typeof subscriptionAnswer>;

/**
 * An entry of a list of vaults.
 * @throws {CloudFailure} badResponse when it is not what the service documents.
 */
export function readVaultEntry(entry: unknown): AnsweredVault {
  const { data, error } = vaultAnswer.safeParse(entry);
  if (data) return data;
  throw undocumented({ operation: "read the description", resource: `key vault ${nameOfVault(entry) ?? "?"}` }, error);
}

/** The name of an entry of a list of vaults, where that much of it can be read. */
export function nameOfVault(entry: unknown): string | undefined {
  return z.object({ name: vaultName }).safeParse(entry).data?.name;
}

/**
 * An entry of the list of subscriptions.
 * @throws {CloudFailure} badResponse when it is not what the service documents.
 */
export function readSubscriptionEntry(entry: unknown): AnsweredSubscription {
  const { data, error } = subscriptionAnswer.safeParse(entry);
  if (data) return data;
  throw undocumented({ operation: "read the description", resource: "a subscription" }, error);
}

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
