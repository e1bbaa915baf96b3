import * as z from "zod";
import { ASSET_TYPES, CREDENTIAL_KINDS } from "../inventory/asset.ts";
import { RENEWERS } from "../inventory/renewal.ts";
import type { Webhook } from "../platform/http/openapi-webhooks.ts";
import { END_REASONS } from "./items.ts";
import { ALERT_TYPES, type AlertType, DELIVERY_MODES, eventTypeOf, SEVERITIES } from "./rule.ts";

/**
 * Schemas of the events that rules with the delivery method `webhook` send: for the API description, and as types for
 * webhook.ts, which builds the events. The names of all members are part of the public contract with receivers. The schemas
 * have no names (`.meta({ id })`): oapi-codegen removes named schemas that only webhooks use, and its client then does not
 * compile.
 */

const instant = z.iso.datetime();
const owner = z.string().nullable().meta({ description: "Owner. Null if none is known." });
const thresholdDays = z
  .int()
  .meta({ description: "Lowest threshold that was reached, in days before the expiry. 0: it expired." });
const portalUrl = z.string().meta({ description: "Address in the Azure portal." });
const VAULT_ID =
  "/subscriptions/8eab9bca-7137-4f76-a31c-dcc4acd2ff43/resourceGroups/rg-payments-prod/providers/Microsoft.KeyVault/vaults/kv-payments-prod";

/** Members of items about an alert that an earlier event reported. */
const tracking = {
  state: z.enum(["renewed", "recovered", "stillFailing", "escalated"]).optional().meta({
    description:
      "Absent for a new alert. `renewed`: the asset was renewed. `recovered`: the alert was resolved in another way. `stillFailing`: the failure persists. `escalated`: nobody acknowledged the alert in time.",
  }),
  since: instant
    .optional()
    .meta({ description: "Time of the rule's first event about this alert. Only with `state`." }),
  reason: z.enum(END_REASONS).optional().meta({
    description:
      "How the alert was resolved, only with `recovered`. `mended`: the check passes, or the scan can read the resource. `removed`: it was deleted. `disabled`: the asset was disabled. `outOfScope`: it is no longer monitored.",
  }),
  afterDays: z.int().optional().meta({ description: "Days without acknowledgment, only with `escalated`." }),
};

const Credential = z
  .object({
    tenantId: z.string(),
    kind: z.enum(CREDENTIAL_KINDS).optional().meta({ description: "Kind of credential. Absent: application." }),
    tenantDomain: z.string().optional().meta({ description: "Domain of the tenant." }),
    appId: z.string().optional(),
    applicationName: z.string().meta({ description: "Display name of the application." }),
    keyId: z.string().optional(),
    displayName: z.string().optional(),
  })
  .meta({ description: "Credential of an Entra application or of a B2C tenant." });

export const EventAsset = z
  .object({
    id: z.string().meta({ description: "ID of the asset." }),
    type: z.enum(ASSET_TYPES),
    name: z.string().meta({ description: "Name exactly as in Azure." }),
    vaultName: z.string().nullable().meta({ description: "Null for a directory credential." }),
    vaultId: z.string().nullable().meta({ description: "Resource ID of the vault. Null for a directory credential." }),
    subscriptionId: z.string().nullable(),
    subscriptionName: z.string().nullable().meta({ description: "Null if the name is unknown." }),
    credential: Credential.optional().meta({ description: "Only for a directory credential." }),
    owner,
    expiresOn: instant.meta({ description: "Expiry date, ISO 8601." }),
    thresholdDays,
    pageUrl: z
      .string()
      .nullable()
      .meta({ description: "Address of the asset on the page of the service. Null if PUBLIC_BASE_URL is not set." }),
    renewedBy: z.enum(RENEWERS).optional().meta({
      description: "Renewer of a certificate whose renewal is late. Absent otherwise.",
    }),
    windowEnd: instant.optional().meta({
      description: "End of the renewal window of a certificate whose renewal is late. Absent otherwise.",
    }),
    portalUrl,
    ...tracking,
    renewedUntil: instant
      .nullable()
      .optional()
      .meta({ description: "New expiry date, only with `renewed`. Null if the asset no longer expires." }),
    version: z
      .string()
      .nullable()
      .optional()
      .meta({ description: "New version, only with `renewed`. Null if unknown." }),
  })
  .meta({
    description: "An asset that expires soon or expired, or the end of such an alert.",
    example: {
      id: "kv-payments-prod.secret.sql-password",
      type: "secret",
      name: "sql-password",
      vaultName: "kv-payments-prod",
      vaultId: VAULT_ID,
      subscriptionId: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43",
      subscriptionName: "Acme Production",
      owner: "payments-team",
      expiresOn: "2026-11-28T10:00:00.000Z",
      thresholdDays: 7,
      pageUrl: "https://lifecycle.acme.example/#/inventory/kv-payments-prod.secret.sql-password",
      portalUrl: `https://portal.azure.com/#@/resource${VAULT_ID}/secrets`,
    },
  });

export const EventViolation = z
  .object({
    id: z.string().meta({ description: "ID of the violation: `<checkId>.<resourceId>`." }),
    checkId: z.string(),
    title: z.string().meta({ description: "Title of the check." }),
    severity: z.enum(SEVERITIES),
    resourceId: z.string().meta({ description: "ID of an asset, or name of a vault." }),
    resourceType: z.string().meta({ description: "Type of the resource." }),
    vaultName: z.string().nullable(),
    subscriptionId: z.string().nullable(),
    owner,
    firstSeenAt: instant.meta({ description: "Time at which the violation was first found." }),
    portalUrl: portalUrl.nullable(),
    ...tracking,
  })
  .meta({
    description: "A compliance violation, or the end of such an alert.",
    example: {
      id: "secret-expired.kv-payments-prod.secret.sql-password",
      checkId: "secret-expired",
      title: "The secret has expired.",
      severity: "critical",
      resourceId: "kv-payments-prod.secret.sql-password",
      resourceType: "secret",
      vaultName: "kv-payments-prod",
      subscriptionId: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43",
      owner: "payments-team",
      firstSeenAt: "2026-11-21T10:00:00.000Z",
      portalUrl: `https://portal.azure.com/#@/resource${VAULT_ID}`,
    },
  });

export const EventScanFailure = z
  .object({
    id: z.string().meta({ description: "`vault:<name>`, `subscription:<ID>`, or `scan` for scans as a whole." }),
    scanId: z.string().meta({ description: "ID of the scan that found the failure." }),
    subscriptionId: z.string().nullable(),
    vaultName: z.string().nullable(),
    list: z.string().nullable().meta({ description: "The vault's list that can't be read." }),
    code: z.string(),
    message: z.string().meta({ description: "Reason of the failure." }),
    remedy: z.string().meta({ description: "How to fix the failure." }),
    at: instant,
    ...tracking,
  })
  .meta({
    description: "A resource that scans can't read, or the end of such an alert.",
    example: {
      id: "vault:kv-payments-prod",
      scanId: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A",
      subscriptionId: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43",
      vaultName: "kv-payments-prod",
      list: "secrets",
      code: "accessDenied",
      message: "The vault denies access.",
      remedy: "Assign the role Key Vault Reader.",
      at: "2026-11-21T10:00:00.000Z",
    },
  });

export const EventScan = z
  .object({
    scanId: z.string(),
    mode: z.string(),
    status: z.string(),
    finishedAt: instant,
    vaultsTotal: z.int(),
    vaultsFailed: z.int(),
    message: z.string().nullable(),
  })
  .meta({
    description:
      "A scan that did not complete, as events of version 1.0 and earlier had it. Only notifications that such a version stored are still sent in this form.",
  });

export const EventServiceCredential = z
  .object({
    id: z.string(),
    what: z.string().meta({ description: "Kind of credential.", example: "API token" }),
    name: z.string().meta({ description: "Name of the credential.", example: "nightly report" }),
    owner: owner.meta({ description: "User to whom the credential belongs. Null if it is the service's own." }),
    expiresOn: instant.meta({ description: "Expiry date, ISO 8601." }),
    thresholdDays,
  })
  .meta({ description: "A credential of the service or of its users." });

export const EventBreakGlass = z
  .object({
    entryId: z.string().meta({ description: "ID of the audit entry." }),
    username: z.string(),
    address: z.string().nullable().meta({ description: "Address of the client, IPv6 as its /64. Null if unknown." }),
    at: instant,
  })
  .meta({ description: "A password sign-in while passwords are turned off." });

const text = (description: string, example: string) => z.string().meta({ description, example });
export const EventAutomation = z
  .object({
    id: z.string().meta({ description: "ID of the event. IDs of one kind sort by time." }),
    title: text("What the event is about.", "Payments API"),
    what: text("The event, as the predicate of `title`.", "was rotated"),
    why: text("Reason. Empty if there is none.", "The client secret expires in 14 days."),
    done: text("Completed actions. Empty if there are none.", "A new client secret was created."),
    safe: text("Current state. Empty if it does not matter.", "The old secret is still valid."),
    next: text("Next step. Empty if nothing is left to do.", "Restart the consumers."),
    at: instant,
    appId: z.string().nullable(),
    rotationId: z.string().nullable().meta({ description: "ID of the rotation. Null if there is none." }),
    recordId: z.string().nullable().meta({ description: "ID of the sync record. Null if there is none." }),
    vaultName: z.string().optional().meta({ description: "Vault that a reference names. Absent for other events." }),
  })
  .meta({ description: "An event of rotations, syncs, dependency discovery, audit streams or storage." });

export type EventItem =
  | z.infer<typeof EventAsset>
  | z.infer<typeof EventViolation>
  | z.infer<typeof EventScanFailure>
  | z.infer<typeof EventScan>
  | z.infer<typeof EventServiceCredential>
  | z.infer<typeof EventBreakGlass>
  | z.infer<typeof EventAutomation>;

/** By the type of the rule: the schema of the event's items, and the title of the event in the API description. */
const EVENTS: Record<AlertType, { item: z.ZodType; summary: string }> = {
  expiration: { item: EventAsset, summary: "Assets expire soon" },
  expired: { item: EventAsset, summary: "Assets expired" },
  credentialExpiry: { item: EventAsset, summary: "Credentials of applications expire soon or expired" },
  lateRenewal: { item: EventAsset, summary: "Certificates were not renewed in time" },
  complianceViolation: { item: EventViolation, summary: "Compliance violations were found" },
  scanFailure: { item: z.union([EventScanFailure, EventScan]), summary: "Scans can't read vaults or subscriptions" },
  serviceCredentialExpiry: { item: EventServiceCredential, summary: "Credentials of the service expire soon" },
  breakGlass: { item: EventBreakGlass, summary: "An administrator signed in while passwords are turned off" },
  rotationDue: { item: EventAutomation, summary: "Client secrets are due for rotation" },
  rotationDone: { item: EventAutomation, summary: "Rotations completed" },
  rotationFailed: { item: EventAutomation, summary: "Rotations need attention" },
  syncFailed: { item: EventAutomation, summary: "Syncs failed" },
  referenceUnresolved: { item: EventAutomation, summary: "Key Vault references are not resolved" },
  unexpectedReader: { item: EventAutomation, summary: "Assets were read by unexpected identities" },
  rowUnreadable: { item: EventAutomation, summary: "Stored rows can't be read" },
  staleEndpoint: { item: EventAutomation, summary: "Endpoints don't serve their certificate as they should" },
  auditStreamFailing: { item: EventAutomation, summary: "Audit streams don't reach their receivers" },
};

const eventMembers = {
  specversion: z.literal("1.0"),
  id: z.string().meta({ description: "ID of the notification. The same for every attempt." }),
  source: z.string().meta({
    description: "PUBLIC_BASE_URL of the service, or `urn:credential-lifecycle`.",
    example: "https://lifecycle.acme.example",
  }),
  subject: z.string().meta({
    description: "`alerts/rules/<ID>` of the rule.",
    example: "alerts/rules/01KB9Z6Q4V3N8S7T5W2X1Y0Z9A",
  }),
  time: instant.meta({ description: "Time at which the notification was created." }),
  datacontenttype: z.literal("application/json"),
};
const dataMembers = {
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean().meta({ description: "True for a test of the rule: the item is an example.", example: false }),
  resolved: z
    .boolean()
    .meta({ description: "True if all items are resolved, so that nothing is left to do.", example: false }),
  total: z.int().meta({ description: "Number of items.", example: 1 }),
  historyUrl: z.string().nullable().meta({
    description: "Address of the notification in the API. Null if PUBLIC_BASE_URL is not set.",
    example: "https://lifecycle.acme.example/alerts/history/01KB9Z6Q4V3N8S7T5W2X1Y0Z9A",
  }),
};

/** Returns the schema of the events of a rule's type: CloudEvents 1.0, structured mode. */
export const eventOf = <T extends AlertType>(type: T) => {
  const rule = z.object({
    id: z.string().meta({ description: "ID of the rule." }),
    name: z.string().meta({ description: "Name of the rule.", example: "Production secrets" }),
    alertType: z.literal(type),
  });
  const data = z.object({ rule, ...dataMembers, items: z.array(EVENTS[type].item) });
  return z.object({ ...eventMembers, type: z.literal(eventTypeOf(type)), data });
};

/** An event of any type. */
export interface AlertEvent extends z.infer<z.ZodObject<typeof eventMembers>> {
  type: ReturnType<typeof eventTypeOf>;
  data: z.infer<z.ZodObject<typeof dataMembers>> & {
    rule: { id: string; name: string; alertType: AlertType };
    items: EventItem[];
  };
}

/** Headers of Standard Webhooks, with which receivers verify the sender and detect duplicates. */
export const EventHeaders = z.object({
  "webhook-id": z.string().meta({ description: "ID of the notification, the same for every attempt." }),
  "webhook-timestamp": z
    .string()
    .regex(/^\d+$/)
    .meta({ description: "Time of this attempt in seconds since 1970.", example: "1795255200" }),
  "webhook-signature": z.string().meta({
    description:
      "`v1,` and the Base64 of the HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`, with the bytes of the signing key. While a key is being replaced: two of them, with a space in between.",
    example: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
  }),
});

/** All events, for the API description. */
export const alertWebhooks = (): Webhook[] =>
  ALERT_TYPES.map((type) => ({
    name: eventTypeOf(type),
    operationId: `on${type[0]!.toUpperCase()}${type.slice(1)}`,
    tag: "Alerts",
    summary: EVENTS[type].summary,
    description: `Sent by rules with the alertType \`${type}\` and the deliveryMethod \`webhook\`, as a CloudEvent that is signed as Standard Webhooks. Deliveries can arrive twice, with the same webhook-id.`,
    mediaType: "application/cloudevents+json",
    headers: EventHeaders,
    body: eventOf(type),
    responses: {
      "2XX": "The receiver accepted the event.",
      "410": "The receiver no longer accepts events. The delivery fails without another attempt.",
      "429": "The service repeats the delivery after the seconds in `Retry-After`.",
      default: "The service repeats the delivery later. Redirects are not followed.",
    },
  }));
