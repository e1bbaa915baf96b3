import * as z from "zod";
import { parseResourceId } from "../platform/azure/resource-id.ts";

/**
 * Events of Event Grid, as it puts them into a storage queue: one per message, base64 of JSON, in one of two schemas.
 * https://learn.microsoft.com/azure/event-grid/handler-storage-queues
 * https://learn.microsoft.com/azure/event-grid/event-schema-key-vault
 * https://learn.microsoft.com/azure/event-grid/event-schema-subscriptions
 */
export const EVENT_QUEUE = "vault-events";

/** The vault that an event names. An event is only a hint that this vault may have changed, so nothing else of it is used. */
export interface VaultHint {
  /** Rebuilt from the validated parts of the event's resource ID. */
  vaultId: string;
  vaultName: string;
  /** In lower case. */
  subscriptionId: string;
  /**
   * `assets`: sent by the vault, about one of its objects. `vault`: sent by the vault, about itself. `resource`: sent by the
   * resource manager after a write or delete of the vault or one of its child resources.
   */
  about: "assets" | "vault" | "resource";
}

/** Matches events of a vault about its objects, such as `Microsoft.KeyVault.SecretNewVersionCreated`. */
const KEY_VAULT_EVENT = /^Microsoft\.KeyVault\.(?:(?:Secret|Key|Certificate)(?:NewVersionCreated|NearExpiry|Expired))$/;
const POLICY_EVENT = "Microsoft.KeyVault.VaultAccessPolicyChanged";
/** Matches events of the resource manager, such as `Microsoft.Resources.ResourceWriteSuccess`. */
const RESOURCE_EVENT = /^Microsoft\.Resources\.Resource(?:Write|Delete)Success$/;

const VAULT = "microsoft.keyvault/vaults";
const VAULT_NAME = /^[0-9A-Za-z-]{1,127}$/;

const shortText = z.string().max(2048);

const EventGridEvent = z
  .object({ id: shortText, topic: shortText, subject: shortText, eventType: shortText, eventTime: shortText })
  .transform(({ topic, subject, eventType }) => ({ source: topic, subject, type: eventType }));

/** https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md: `subject` and `time` are optional. */
const CloudEvent = z
  .object({
    specversion: z.literal("1.0"),
    id: shortText,
    source: shortText,
    subject: shortText.default(""),
    type: shortText,
  })
  .transform(({ source, subject, type }) => ({ source, subject, type }));

/**
 * A message of the queue. The hint is undefined for other event types and other resources. A message that is no event is
 * invalid. Unused members are dropped here, such as names and addresses of people in the resource manager's events.
 */
export const VaultEvent = z.union([CloudEvent, EventGridEvent]).transform((event) => ({ hint: hintOf(event) }));
export type VaultEvent = z.infer<typeof VaultEvent>;

function hintOf({ source, subject, type }: { source: string; subject: string; type: string }): VaultHint | undefined {
  if (KEY_VAULT_EVENT.test(type)) return vaultOf(source, "assets");
  if (type === POLICY_EVENT) return vaultOf(source, "vault");
  if (!RESOURCE_EVENT.test(type)) return undefined;
  // The resource manager's subject is the vault, and its source is the vault's subscription. Both must name the same one.
  const hint = vaultOf(subject, "resource");
  const topic = /^\/subscriptions\/([0-9a-f-]{36})(?:\/|$)/i.exec(source)?.[1]?.toLowerCase();
  return hint?.subscriptionId === topic ? hint : undefined;
}

/** Returns the vault of a resource ID. For events of the resource manager, the ID of a child resource counts too. */
function vaultOf(id: string, about: VaultHint["about"]): VaultHint | undefined {
  const parsed = parseResourceId(id);
  const isVault = parsed?.type === VAULT || (about === "resource" && parsed?.type.startsWith(`${VAULT}/`));
  const vaultName = parsed?.names[0];
  if (!parsed || !isVault || vaultName === undefined || !VAULT_NAME.test(vaultName)) return undefined;
  const subscriptionId = parsed.subscriptionId.toLowerCase();
  return {
    vaultId: `/subscriptions/${subscriptionId}/resourceGroups/${parsed.resourceGroup}/providers/Microsoft.KeyVault/vaults/${vaultName}`,
    vaultName,
    subscriptionId,
    about,
  };
}
