import { type CredentialKind, isCredentialId } from "../inventory/asset.ts";
import { DAY_MS, HOUR_MS } from "../time.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type {
  AssetItem,
  AutomationItem,
  BreakGlassItem,
  CredentialItem,
  Item,
  ScanItem,
  Urgency,
  ViolationItem,
} from "./items.ts";
import type { AlertType } from "./rule.ts";

/** One line of a message: what it is about, why, and where to do something about it. */
export interface MessageLine {
  urgency: Urgency;
  title: string;
  /** `expires in 6 days, on 27 November 2026` */
  what: string;
  /** Label and value pairs in the order to show them. */
  facts: [label: string, value: string][];
  link?: { text: string; url: string };
}

/** What a message says, whichever way it goes out. */
export interface Message {
  subject: string;
  /** One sentence under the subject. */
  intro: string;
  lines: MessageLine[];
  /** Why the reader gets this, and how to stop it. */
  why: string[];
  ruleName: string;
  /** Where the delivery can be looked up; undefined when PUBLIC_BASE_URL is not set. */
  historyUrl?: string;
}

export interface Links {
  /** https://portal.azure.com, or the sovereign cloud's. */
  portal: string;
  tenantId: string | undefined;
  publicBaseUrl: string | undefined;
}

/** Days left up to which an asset counts as critical or as a warning in a message, as the defaults of the policy have it. */
const CRITICAL_DAYS = 7;
const WARNING_DAYS = 30;

/** The message of a delivery; the same at every attempt, since it is worded as of the instant the delivery was made. */
export function messageOf(delivery: Omit<DeliveryRecord, "news">, items: readonly Item[], links: Links): Message {
  const at = new Date(delivery.createdAt);
  const lines = items.map((one) => lineOf(one, at, links));
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  const digest = delivery.deliveryMode === "digest" ? "Digest: " : "";
  const prefix = delivery.test ? "[Test] " : "";
  return {
    subject: `${prefix}${digest}${headline(delivery.alertType, items, lines)}`,
    intro: introOf(delivery, items),
    lines,
    why: [
      `You get this because of the alert rule “${delivery.ruleName}” (${delivery.ruleId}).`,
      "To stop it, ask an administrator of the service to take you off the rule's recipients, to snooze an asset for this rule (POST /alerts/snoozes), or to disable the rule.",
    ],
    ruleName: delivery.ruleName,
    ...(base ? { historyUrl: `${base}/alerts/history/${delivery.deliveryId}` } : {}),
  };
}

const AUTOMATION_HEADLINES: Partial<Record<AlertType, string>> = {
  rotationDue: "client secrets are due",
  rotationDone: "applications have a new client secret",
  rotationFailed: "rotations need somebody to look",
  syncFailed: "copies of secrets are not kept",
  referenceUnresolved: "references to vaults can't be followed",
};

function headline(alertType: AlertType, items: readonly Item[], lines: readonly MessageLine[]): string {
  const first = items[0];
  const line = lines[0];
  if (!first || !line) return "Nothing to report";
  if (items.length === 1) return `${line.title} ${line.what}`;
  switch (first.kind) {
    case "asset": {
      const expired = lines.filter(({ urgency }) => urgency === "expired").length;
      const soon = lines.length - expired;
      const parts = [
        ...(expired > 0 ? [`${expired} expired`] : []),
        ...(soon > 0 ? [`${soon} ${soon === 1 ? "expires" : "expire"} soon`] : []),
      ];
      return `${parts.join(", ")}; first ${line.title} ${line.what}`;
    }
    case "violation":
      return `${items.length} new compliance violations, the most severe ${first.severity}`;
    case "scan":
      return `${items.length} discovery scans did not complete`;
    case "credential":
      return `${items.length} credentials of the service expire soon; first ${line.title} ${line.what}`;
    case "automation":
      return `${items.length} ${AUTOMATION_HEADLINES[alertType] ?? "things"}; first ${line.title} ${line.what}`;
    case "breakGlass":
      return `${items.length} sign-ins with a password while passwords are switched off; first ${line.title}`;
  }
}

function introOf({ deliveryMode, test }: Omit<DeliveryRecord, "news">, items: readonly Item[]): string {
  if (test) return "This is a test of the alert rule. What follows is an example and needs no action.";
  const many = items.length === 1 ? "One thing is new" : `${items.length} things are new`;
  const since = deliveryMode === "digest" ? " since the last digest" : "";
  const order = items.length > 1 ? ", the most urgent first" : "";
  return `${many}${since}${order}.`;
}

function lineOf(item: Item, at: Date, links: Links): MessageLine {
  switch (item.kind) {
    case "asset":
      return assetLine(item, at, links);
    case "violation":
      return violationLine(item, links);
    case "scan":
      return scanLine(item, links);
    case "credential":
      return credentialLine(item, at);
    case "breakGlass":
      return breakGlassLine(item);
    case "automation":
      return automationLine(item, links);
  }
}

const PORTAL_LIST = { secret: "secrets", key: "keys", certificate: "certificates" } as const;
const TYPE_NAMES = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;
const CREDENTIAL_NAMES = { secret: "Client secret", key: "Key", certificate: "Certificate" } as const;

function assetLine(item: AssetItem, at: Date, links: Links): MessageLine {
  const left = item.expiresOn * 1000 - at.getTime();
  const on = dateText(new Date(item.expiresOn * 1000));
  const { credential } = item;
  return {
    urgency: urgencyOf(left),
    title: credential
      ? [credential.applicationName, credential.displayName ?? credential.keyId].filter(Boolean).join("/")
      : `${item.vaultName}/${item.name}`,
    what: left < 0 ? `expired ${ago(-left)}` : `expires ${within(left)}`,
    facts: [
      ["Type", credential ? credentialType(item.type, credential.kind) : TYPE_NAMES[item.type]],
      ...(
        [
          ["Tenant", credential?.tenantDomain],
          ["Client id", credential?.appId],
          ["Key id", credential?.keyId],
        ] as const
      ).flatMap(([label, value]): [string, string][] => (value === undefined ? [] : [[label, value]])),
      [left < 0 ? "Expired" : "Expires", on],
      ["Owner", item.owner ?? "none given"],
      ...(item.threshold > 0 ? ([["Threshold", dayCount(item.threshold)]] as [string, string][]) : []),
    ],
    link: {
      text: "Open in the Azure portal",
      url: credential ? credentialsLink(links, credential) : vaultLink(links, item.vaultId, PORTAL_LIST[item.type]),
    },
  };
}

const credentialType = (type: AssetItem["type"], kind: CredentialKind = "application"): string => {
  if (kind === "policyKey") return `${TYPE_NAMES[type]} of a custom policy`;
  return kind === "identityProvider" ? "Identity provider" : `${CREDENTIAL_NAMES[type]} of an application`;
};

/** @param left - Milliseconds until it expires. */
function urgencyOf(left: number): Urgency {
  if (left < 0) return "expired";
  if (left <= CRITICAL_DAYS * DAY_MS) return "critical";
  return left <= WARNING_DAYS * DAY_MS ? "warning" : "notice";
}

const SEVERITY_URGENCY = { critical: "expired", high: "critical", medium: "warning", low: "notice" } as const;

function violationLine(item: ViolationItem, links: Links): MessageLine {
  return {
    urgency: SEVERITY_URGENCY[item.severity],
    title: item.resourceId,
    what: `breaks the check ${item.checkId}`,
    facts: [
      ["Check", item.title],
      ["Severity", item.severity],
      ["Owner", item.owner ?? "none given"],
      ...(isCredentialId(item.resourceId) ? [] : ([["Vault", item.vaultName]] as [string, string][])),
      ["First seen", dateText(new Date(item.firstSeenAt))],
    ],
    ...(item.vaultId ? { link: { text: "Open in the Azure portal", url: vaultLink(links, item.vaultId, "") } } : {}),
  };
}

const SCAN_ENDS: Record<string, string> = {
  partial: "could not read every vault",
  failed: "failed",
  timedOut: "ran out of time",
};

function scanLine(item: ScanItem, links: Links): MessageLine {
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  return {
    urgency: item.status === "partial" ? "warning" : "critical",
    title: `Scan ${item.id}`,
    what: SCAN_ENDS[item.status] ?? `ended as ${item.status}`,
    facts: [
      ["Mode", item.mode],
      ["Ended", dateText(new Date(item.finishedAt))],
      ["Vaults not read", `${item.vaultsFailed} of ${item.vaultsTotal}`],
      ...(item.message ? ([["Reason", item.message]] as [string, string][]) : []),
    ],
    ...(base ? { link: { text: "See the results", url: `${base}/api/assets/discovery/scan/${item.id}/results` } } : {}),
  };
}

const breakGlassLine = ({ username, address, at }: BreakGlassItem): MessageLine => ({
  urgency: "expired",
  title: username,
  what: "signed in with a password while passwords are switched off",
  facts: [
    ["At", dateText(new Date(at))],
    ["From", address ?? "unknown"],
  ],
});

function automationLine(item: AutomationItem, links: Links): MessageLine {
  const { title, what, urgency, why, done, safe, next, rotationId, recordId, appId, vaultName } = item;
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  const path = rotationId
    ? `automation/rotation/rotations/${rotationId}`
    : recordId
      ? `automation/sync/records/${recordId}`
      : vaultName
        ? `assets/dependencies?vault=${encodeURIComponent(vaultName)}&resolved=false`
        : `automation/rotation/apps/${appId}`;
  const facts: [string, string][] = [
    ["Why", why],
    ["Done", done],
    ["Safe", safe],
    ["To do", next],
    ["Client id", appId ?? ""],
    ["Rotation", rotationId ?? ""],
    ["Sync record", recordId ?? ""],
  ];
  return {
    urgency,
    title,
    what,
    facts: facts.filter(([, value]) => value !== ""),
    ...(base && { link: { text: "See how it stands", url: `${base}/api/${path}` } }),
  };
}

function credentialLine(item: CredentialItem, at: Date): MessageLine {
  const left = item.expiresOn * 1000 - at.getTime();
  return {
    urgency: urgencyOf(left),
    title: `${item.what} “${item.name}”`,
    what: left < 0 ? `expired ${ago(-left)}` : `expires ${within(left)}`,
    facts: [
      ["Expires", dateText(new Date(item.expiresOn * 1000))],
      ...(item.owner === undefined ? [] : ([["User", item.owner]] as [string, string][])),
      ["Threshold", dayCount(item.threshold)],
    ],
  };
}

/** https://learn.microsoft.com/azure/azure-portal/azure-portal-overview: a resource's page, and a list under it. */
export function vaultLink({ portal, tenantId }: Links, vaultId: string, list: string): string {
  const path = vaultId.split("/").map(encodeURIComponent).join("/");
  return `${portal}/#${tenantId ? `@${tenantId}` : ""}/resource${path}${list ? `/${list}` : ""}`;
}

/** The page of an application registration's certificates and secrets; of a B2C tenant's other credentials the tenant's. */
export function credentialsLink(
  { portal }: Links,
  { kind = "application", appId, tenantDomain }: NonNullable<AssetItem["credential"]>,
): string {
  const directory = `${portal}/#${tenantDomain === undefined ? "" : `@${encodeURIComponent(tenantDomain)}/`}view`;
  return kind === "application" && appId !== undefined
    ? `${directory}/Microsoft_AAD_RegisteredApps/ApplicationMenuBlade/~/Credentials/appId/${encodeURIComponent(appId)}`
    : `${directory}/Microsoft_AAD_B2CAdmin/TenantManagementMenuBlade/~/overview`;
}

/** In UTC and in a form that reads the same in every country. */
const dateText = (date: Date): string =>
  `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ${date.toISOString().slice(11, 16)} UTC`;
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

const dayCount = (days: number): string => (days === 1 ? "1 day" : `${days} days`);

function within(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= 1) return `in ${dayCount(days)}`;
  const hours = Math.floor(milliseconds / HOUR_MS);
  return hours >= 1 ? `in ${hours} ${hours === 1 ? "hour" : "hours"}` : "within the hour";
}

function ago(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= 1) return `${dayCount(days)} ago`;
  const hours = Math.floor(milliseconds / HOUR_MS);
  return hours >= 1 ? `${hours} ${hours === 1 ? "hour" : "hours"} ago` : "within the last hour";
}
