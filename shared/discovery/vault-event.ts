import * as z from "zod";
import { parseResourceId } from "../platform/azure/resource-id.ts";

/**
 * Events of Event Grid as it puts them into a storage queue: one a message, base64 of JSON, in one of its two schemas.
 * https://learn.microsoft.com/azure/event-grid/handler-storage-queues
 * https://learn.microsoft.com/azure/event-grid/event-schema-key-vault
 * https://learn.microsoft.com/azure/event-grid/event-schema-subscriptions
 */
export const EVENT_QUEUE = "vault-events";

/** What is taken from an event: that something may have changed in this vault, and nothing else. */
export interface VaultHint {
  /** Put together from the checked parts of the id that the event names. */
  vaultId: string;
  vaultName: string;
  /** Lower case. */
  subscriptionId: string;
  /**
   * `assets`: sent by the vault, about something in it. `vault`: sent by the vault, about itself. `resource`: sent by the
   * resource manager, which wrote or deleted the vault or a part of it.
   */
  about: "assets" | "vault" | "resource";
}

const KEY_VAULT_EVENT = /^Microsoft\.KeyVault\.(?:(?:Secret|Key|Certificate)(?:NewVersionCreated|NearExpiry|Expired))$/;
const POLICY_EVENT = "Microsoft.KeyVault.VaultAccessPolicyChanged";
const RESOURCE_EVENT = /^Microsoft\.Resources\.Resource(?:Write|Delete)Success$/;

const VAULT = "microsoft.keyvault/vaults";
const VAULT_NAME = /^[0-9A-Za-z-]{1,127}$/;

const text = z.string().max(2048);

const EventGridEvent = z
  .object({ id: text, topic: text, subject: text, eventType: text, eventTime: text })
  .transform(({ topic, subject, eventType }) => ({ source: topic, subject, type: eventType }));

/** https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md: `subject` and `time` may be missing. */
const CloudEvent = z
  .object({ specversion: z.literal("1.0"), id: text, source: text, subject: text.default(""), type: text })
  .transform(({ source, subject, type }) => ({ source, subject, type }));

/**
 * A message of the queue. Of an event of any other type, or of anything but a vault, no hint is left; a message that is
 * no event does not fit. Members that are not read, such as the names and addresses of people in the resource manager's
 * events, are dropped here.
 */
export const VaultEvent = z.union([CloudEvent, EventGridEvent]).transform((event) => ({ hint: hintOf(event) }));
export type VaultEvent = z.infer<typeof VaultEvent>;

function hintOf({ source, subject, type }: { source: string; subject: string; type: string }): VaultHint | undefined {
  if (KEY_VAULT_EVENT.test(type)) return vaultOf(source, "assets");
  if (type === POLICY_EVENT) return vaultOf(source, "vault");
  if (!RESOURCE_EVENT.test(type)) return undefined;
  const hint = vaultOf(subject, "resource");
  const topic = /^\/subscriptions\/([0-9a-f-]{36})(?:\/|$)/i.exec(source)?.[1]?.toLowerCase();
  return hint?.subscriptionId === topic ? hint : undefined;
}

/** The vault that an id names; of the resource manager's events also that of a part of a vault. */
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
