import * as z from "zod";
import { undocumented } from "./calls.ts";

/**
 * Schemas of the responses of Azure Resource Manager, with the members that the service uses. Subscriptions and vaults are
 * checked as the SDK clients return them. https://learn.microsoft.com/rest/api/azure/
 */

/** A longer text would not fit into a table row. */
const text = z.string().max(4096).nullish();
const flag = z.boolean().nullish();
/** An invalid date is read as undefined: the SDK client creates one from a text that is not a date. */
const date = z.instanceof(Date).nullish().catch(undefined);

/** A subscription ID becomes part of addresses and of storage keys. */
const SUBSCRIPTION_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const subscriptionSchema = z.object({
  subscriptionId: z.string().regex(SUBSCRIPTION_ID),
  displayName: text,
  state: text,
  tenantId: text,
});

/** `/subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>` */
const VAULT_ID =
  /^\/subscriptions\/[0-9a-f-]{36}\/resourceGroups\/[^/]+\/providers\/Microsoft\.KeyVault\/vaults\/[0-9A-Za-z-]+$/i;

/** A vault's name becomes part of storage keys. */
const vaultName = z.string().regex(/^[0-9A-Za-z-]{1,127}$/);

const vaultSchema = z.object({
  id: z.string().max(1024).regex(VAULT_ID),
  name: vaultName,
  location: text,
  /**
   * At most 50 tags, names of 512 and values of 256 characters, so valid tags have less than 40,000 characters:
   * https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources
   */
  tags: z
    .record(z.string(), z.unknown())
    .refine((tags) => JSON.stringify(tags).length <= 40_000)
    .nullish(),
  systemData: z.object({ createdAt: date, lastModifiedAt: date }).nullish(),
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
      .array(z.object({ privateLinkServiceConnectionState: z.object({ status: text }).nullish() }))
      .nullish(),
  }),
});

/**
 * Checks a vault that the SDK client returned. The SDK client copies most members without a check.
 * @throws {CloudFailure} badResponse if a member is not what the service documents.
 */
export function requireVault(vault: unknown): z.infer<typeof vaultSchema> {
  const { data, error } = vaultSchema.safeParse(vault);
  if (data) return data;
  throw undocumented({ operation: "read the description", resource: `key vault ${nameOfVault(vault) ?? "?"}` }, error);
}

/** Returns the name of a vault, or undefined if the name is not readable. */
export function nameOfVault(vault: unknown): string | undefined {
  return z.object({ name: vaultName }).safeParse(vault).data?.name;
}

/**
 * Checks a subscription that the SDK client returned.
 * @throws {CloudFailure} badResponse if a member is not what the service documents.
 */
export function requireSubscription(subscription: unknown): z.infer<typeof subscriptionSchema> {
  const { data, error } = subscriptionSchema.safeParse(subscription);
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
