import { assetLink, credentialsLink, vaultLink } from "../azure/portal.ts";
import { type CredentialKind, isCredentialId, titleOfCredential } from "../inventory/asset.ts";
import { DAY_MS, HOUR_MS } from "../time.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type {
  AssetItem,
  AutomationItem,
  BreakGlassItem,
  CredentialItem,
  EscalatedItem,
  Item,
  RecoveredItem,
  RenewedItem,
  ScanFailureItem,
  ScanItem,
  StillFailingItem,
  Urgency,
  ViolationItem,
} from "./items.ts";
import { URGENCIES } from "./items.ts";
import { historyLink, type Links, pageLink, subscriptionText } from "./links.ts";
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
  place?: Place;
}

/** Where the thing lies that a line is about, and whose it is. */
export interface Place {
  /** As its tag names it; empty where it names none. */
  owner: string;
  vault?: string;
  /** Name and id. */
  subscription?: string;
  /** The vault in the portal. */
  url?: string;
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
  /** Where the deliveries can be looked up with a browser; none when PUBLIC_BASE_URL is not set. */
  histories: string[];
  /** The service's page. */
  pageUrl?: string;
}

/** Days left up to which an asset counts as critical or as a warning in a message, as the defaults of the policy have it. */
const CRITICAL_DAYS = 7;
const WARNING_DAYS = 30;

/** What a message tells: items of a delivery, and why they come to these recipients where an owner did not get them. */
export interface Telling {
  delivery: Omit<DeliveryRecord, "news">;
  items: readonly Item[];
  reason?: string | undefined;
  /** What a tag says, whose address the recipient's is. */
  owner?: string | undefined;
}

/** One message of one or several deliveries; worded as of the instant each was made, so the same at every attempt. */
export function messageOf(tellings: readonly Telling[], links: Links): Message {
  const entries = tellings
    .flatMap(({ delivery, items }) =>
      items.map((item) => ({
        item,
        line: lineOf(item, new Date(delivery.createdAt), links),
        place: placeOf(item, links),
      })),
    )
    .sort((a, b) => URGENCIES.indexOf(a.line.urgency) - URGENCIES.indexOf(b.line.urgency));
  const lines = entries.map(({ line, place }): MessageLine => ({ ...line, ...(place && { place }) }));
  const deliveries = tellings.map(({ delivery }) => delivery);
  const types = new Set(deliveries.map(({ alertType }) => alertType));
  const digest = deliveries.every(({ deliveryMode }) => deliveryMode === "digest") ? "Digest: " : "";
  const prefix = deliveries.some(({ test }) => test) ? "[Test] " : "";
  const words =
    types.size > 1 && lines[0]
      ? `${lines.length} alerts; first ${lines[0].title} ${lines[0].what}`
      : headline(
          deliveries[0]!.alertType,
          entries.map(({ item }) => item),
          lines,
        );
  const rules = new Map(deliveries.map(({ ruleId, ruleName }) => [ruleId, ruleName]));
  const page = pageLink(links);
  return {
    subject: `${prefix}${digest}${words}`,
    intro: introOf(deliveries, lines.length),
    lines,
    why: [
      ...[...rules].map(([id, name]) => `You get this because of the alert rule “${name}” (${id}).`),
      ...tellings.flatMap(({ reason }) => (reason ? [`Not told to an owner: ${reason}.`] : [])),
      ...new Set(
        tellings.flatMap(({ owner }) => (owner ? [`It goes to you as the owner that tags name: “${owner}”.`] : [])),
      ),
      "To stop it, ask an administrator of the service to take you off the rule's recipients, to snooze an asset for this rule (POST /alerts/snoozes), or to disable the rule.",
    ],
    ruleName: deliveries[0]!.ruleName,
    histories: [...new Set(deliveries.map(({ deliveryId }) => deliveryId))].flatMap(
      (id) => historyLink(links, id) ?? [],
    ),
    ...(page && { pageUrl: page }),
  };
}

const NO_LINKS: Links = {
  portal: "",
  tenantId: undefined,
  publicBaseUrl: undefined,
  keyVaultSuffix: "",
  subscriptionName: () => undefined,
};

/** The most urgent of the items, as a place in `URGENCIES`. */
export const urgencyIn = (items: readonly Item[], at: Date): number =>
  items.reduce(
    (most, item) => Math.min(most, URGENCIES.indexOf(lineOf(item, at, NO_LINKS).urgency)),
    URGENCIES.length - 1,
  );

/** Where an item lies and whose it is; undefined for what lies in no vault. */
function placeOf(item: Item, links: Links): Place | undefined {
  const about = "of" in item ? item.of : item;
  if (about.kind !== "asset" && about.kind !== "violation") return undefined;
  const ofVault = about.kind === "asset" ? !about.credential : !isCredentialId(about.resourceId);
  return {
    owner: about.owner ?? "",
    ...(ofVault && {
      vault: about.vaultName,
      subscription: subscriptionText(links, about.subscriptionId),
      ...(about.vaultId && { url: vaultLink(links, about.vaultId, "") }),
    }),
  };
}

const AUTOMATION_HEADLINES: Partial<Record<AlertType, string>> = {
  rotationDue: "client secrets are due",
  rotationDone: "applications have a new client secret",
  rotationFailed: "rotations need somebody to look",
  syncFailed: "copies of secrets are not kept",
  referenceUnresolved: "references to vaults can't be followed",
  unexpectedReader: "assets were read by somebody whom nobody expected",
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
    case "scanFailure":
    case "stillFailing":
      return `${items.length} failures of scans; first ${line.title} ${line.what}`;
    case "renewed":
    case "recovered":
      return `${items.length} alerts have ended; first ${line.title} ${line.what}`;
    case "escalated":
      return `${items.length} alerts that nobody acknowledged; first ${line.title} ${line.what}`;
  }
}

function introOf(deliveries: readonly Omit<DeliveryRecord, "news">[], count: number): string {
  if (deliveries.some(({ test }) => test))
    return "This is a test of the alert rule. What follows is an example and needs no action.";
  const many = count === 1 ? "One thing is new" : `${count} things are new`;
  const since = deliveries.every(({ deliveryMode }) => deliveryMode === "digest") ? " since the last digest" : "";
  const order = count > 1 ? ", the most urgent first" : "";
  return `${many}${since}${order}.`;
}

export function lineOf(item: Item, at: Date, links: Links): MessageLine {
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
    case "scanFailure":
      return scanFailureLine(item, links);
    case "renewed":
    case "recovered":
      return endLine(item, lineOf(item.of, at, links));
    case "stillFailing":
    case "escalated":
      return lastingLine(item, lineOf(item.of, at, links));
  }
}

const TYPE_NAMES = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;
const CREDENTIAL_NAMES = { secret: "Client secret", key: "Key", certificate: "Certificate" } as const;

function assetLine(item: AssetItem, at: Date, links: Links): MessageLine {
  const left = item.expiresOn * 1000 - at.getTime();
  const on = dateText(new Date(item.expiresOn * 1000));
  const { credential } = item;
  return {
    urgency: urgencyOf(left),
    title: credential ? titleOfCredential(credential) : `${item.vaultName}/${item.name}`,
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
      ...(credential ? [] : ([["Subscription", subscriptionText(links, item.subscriptionId)]] as [string, string][])),
      [left < 0 ? "Expired" : "Expires", on],
      ["Owner", item.owner ?? "none given"],
      ...(item.threshold > 0 ? ([["Threshold", dayCount(item.threshold)]] as [string, string][]) : []),
    ],
    link: {
      text: "Open in the Azure portal",
      url: credential ? credentialsLink(links, credential) : assetLink(links, item),
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
      ...(isCredentialId(item.resourceId)
        ? []
        : ([
            ["Vault", item.vaultName],
            ["Subscription", subscriptionText(links, item.subscriptionId)],
          ] as [string, string][])),
      ["First seen", dateText(new Date(item.firstSeenAt))],
    ],
    ...(item.vaultId ? { link: { text: "Open in the Azure portal", url: vaultLink(links, item.vaultId, "") } } : {}),
  };
}

const SCAN_ENDS: Record<string, string> = {
  partial: "could not read every subscription and vault",
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

/** Failures that end a scan before it comes to its vaults, and those of which nothing is known but for them. */
const WHOLE_SCAN_CODES = new Set(["scan", "timedOut"]);

function scanFailureLine(item: ScanFailureItem, links: Links): MessageLine {
  const { subscriptionId, vaultName, list, code, message, remedy, scanId } = item;
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  const facts: [string, string | undefined][] = [
    ["Vault", vaultName],
    ["Subscription", subscriptionId && subscriptionText(links, subscriptionId)],
    ["List", list],
    ["Reason", `${message} (${code})`],
    ["To do", remedy],
    ["Seen", dateText(new Date(item.at))],
    ["Scan", scanId],
  ];
  const wider =
    subscriptionId === undefined ? "Discovery scans" : `Subscription ${subscriptionText(links, subscriptionId)}`;
  return {
    urgency: vaultName === undefined ? "critical" : "warning",
    title: vaultName ?? wider,
    what: WHOLE_SCAN_CODES.has(code) ? "do not complete" : "can't be read",
    facts: facts.flatMap(([label, value]): [string, string][] => (value ? [[label, value]] : [])),
    ...(base && { link: { text: "See the results", url: `${base}/api/assets/discovery/scan/${scanId}/results` } }),
  };
}

const END_TEXTS = {
  mended: { asset: "is no longer told of", violation: "is in order again", scanFailure: "can be read again" },
  removed: { asset: "was removed", violation: "was removed", scanFailure: "is no longer there" },
  disabled: { asset: "was disabled", violation: "was disabled", scanFailure: "was disabled" },
  outOfScope: {
    asset: "is not watched any more",
    violation: "is not watched any more",
    scanFailure: "is not watched any more",
  },
} as const;

/** What has ended, in the words of the line that told of it. */
function endLine(item: RenewedItem | RecoveredItem, before: MessageLine): MessageLine {
  const since: [string, string] = ["Told of since", dateText(new Date(item.since))];
  if (item.kind === "recovered") {
    const kept = before.facts.filter(([label]) => label !== "To do");
    return { ...before, urgency: "notice", what: END_TEXTS[item.reason][item.of.kind], facts: [...kept, since] };
  }
  const { expiresOn, version, of } = item;
  const day = (seconds: number) => dateText(new Date(seconds * 1000));
  return {
    ...before,
    urgency: "notice",
    what: expiresOn === undefined ? "was renewed and has no expiry" : `was renewed until ${day(expiresOn)}`,
    facts: [
      ...before.facts.filter(([label]) => label !== "Expires" && label !== "Expired" && label !== "Threshold"),
      ["Expiry before", day(of.expiresOn)],
      ...(version === undefined ? [] : ([["Version", version]] as [string, string][])),
      since,
    ],
  };
}

/** What lasts, in the words of the line that told of it. */
function lastingLine(item: StillFailingItem | EscalatedItem, before: MessageLine): MessageLine {
  const since: [string, string] = ["Told of since", dateText(new Date(item.since))];
  if (item.kind === "stillFailing") return { ...before, what: `still ${before.what}`, facts: [...before.facts, since] };
  const escalated: [string, string] = ["Escalated", `not acknowledged within ${dayCount(item.afterDays)}`];
  return { ...before, facts: [...before.facts, since, escalated] };
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
