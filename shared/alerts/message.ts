import { type CredentialKind, isCredentialId, placesOf, titleOfCredential } from "../inventory/asset.ts";
import { RENEWER_NAMES } from "../inventory/renewal.ts";
import { assetLink, credentialsLink, encodePathSegment, vaultLink } from "../platform/azure/portal.ts";
import { DAY_MS, HOUR_MS } from "../platform/time.ts";
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
import { alertKey, trackedItemOf, URGENCIES } from "./items.ts";
import { assetPageLink, historyLink, type Links, pageLink, subscriptionText, viewLink } from "./links.ts";
import type { AlertType } from "./rule.ts";

/**
 * The content of alert messages, independent of their channel. Each item becomes a line. Items contain names that others choose,
 * such as owner tags; all texts of a message are single lines.
 */

/**
 * Returns a copy in which every text is one line: control characters, line and paragraph separators become one space, invisible
 * format characters such as bidirectional controls are removed, and lone surrogates become U+FFFD. So a name can't add a line to
 * a message or make it look like another one: https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing
 */
export function toSingleLines<T>(value: T): T {
  if (typeof value === "string")
    return value
      .toWellFormed()
      .replace(/\p{Cf}+/gu, "")
      .replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ") as T;
  if (Array.isArray(value)) return value.map((member) => toSingleLines(member)) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, toSingleLines(member)])) as T;
}

/** A link of a line. */
interface MessageLink {
  text: string;
  url: string;
}

/** One line of a message: the item, its state, details, and links. */
export interface MessageLine {
  urgency: Urgency;
  /** The urgency as text. For an item that expires, it says how much time is left: `Within 7 days`. */
  label: string;
  title: string;
  /** `expires in 6 days, on 27 November 2026` */
  what: string;
  /** Details as label and value pairs, in display order. */
  facts: [label: string, value: string][];
  /** Links to the service's page about the item, then to the Azure portal. Empty if neither is known. */
  links: MessageLink[];
  place?: Place;
}

/** The owner and location of an item, for grouping in mails. */
export interface Place {
  /** The value of the owner tag. Empty if there is none. */
  owner: string;
  vault?: string;
  /** Name and id of the vault's subscription. */
  subscription?: string;
  /** The page of the vault's assets, of the application or of the tenant. Without a public URL, the vault in the Azure portal. */
  url?: string;
  /**
   * The application or tenant of a credential, which is in no vault, such as "Application Shop, Microsoft Entra tenant …" or
   * "B2C tenant acme.onmicrosoft.com".
   */
  directory?: string;
}

/** The content of a message, independent of its channel. */
export interface Message {
  subject: string;
  /** One sentence under the subject. */
  intro: string;
  lines: MessageLine[];
  /** Why the recipient gets the message, and how to stop it. */
  why: string[];
  ruleName: string;
  /** Links to the notifications on the web page. Empty if PUBLIC_BASE_URL is not set. */
  histories: string[];
  /** Link to the web page of the service. */
  pageUrl?: string;
}

/** Days before expiry at which messages show an asset as critical or as a warning: the defaults of the compliance policy. */
const CRITICAL_DAYS = 7;
const WARNING_DAYS = 30;

/** The items of one delivery for one group of recipients. */
export interface MessageSource {
  /** The delivery without `news`, the stored form of all its items. */
  delivery: Omit<DeliveryRecord, "news">;
  items: readonly Item[];
  /** Why the items go to the rule's recipients although they have an owner. */
  reason?: string | undefined;
  /** The owner tag that the recipient's address comes from. */
  owner?: string | undefined;
}

/**
 * Returns one message for one or more deliveries. Relative times refer to the creation of each delivery, so that a retry sends
 * the same text.
 */
export function messageOf(sources: readonly MessageSource[], links: Links): Message {
  const ruleNames = new Map(sources.map(({ delivery: { ruleId, ruleName } }) => [ruleId, ruleName]));
  const entries = distinctItems(sources)
    .map(({ item, createdAt, ruleIds }) => ({
      item,
      line: withRules(
        rawLineOf(item, new Date(createdAt), links),
        ruleNames.size === 1 ? [] : [...ruleIds].map((id) => ruleNames.get(id)!),
      ),
      place: placeOf(item, links),
    }))
    .sort(
      (a, b) => URGENCIES.indexOf(a.line.urgency) - URGENCIES.indexOf(b.line.urgency) || compareExpiry(a.item, b.item),
    );
  const lines = entries.map(({ line, place }): MessageLine => ({ ...line, ...(place && { place }) }));
  const deliveries = sources.map(({ delivery }) => delivery);
  const types = new Set(deliveries.map(({ alertType }) => alertType));
  const digest = deliveries.every(({ deliveryMode }) => deliveryMode === "digest") ? "Digest: " : "";
  const prefix = deliveries.some(({ test }) => test) ? "[Test] " : "";
  const headlineText =
    types.size > 1 && lines[0]
      ? `${lines.length} alerts; first ${lines[0].title} ${lines[0].what}`
      : headline(
          deliveries[0]!.alertType,
          entries.map(({ item }) => item),
          lines,
        );
  const page = pageLink(links);
  return toSingleLines({
    subject: `${prefix}${digest}${headlineText}`,
    intro: introOf(deliveries, lines.length),
    lines,
    why: [
      ...[...ruleNames].map(([id, name]) => `You receive this message because of the alert rule “${name}” (${id}).`),
      ...sources.flatMap(({ reason }) => (reason ? [`Not sent to an owner: ${reason}.`] : [])),
      ...new Set(
        sources.flatMap(({ owner }) =>
          owner ? [`It is sent to you because a tag names you as the owner: “${owner}”.`] : [],
        ),
      ),
      "To stop these messages, snooze the asset on its page, or ask an administrator to remove you from the rule's recipients or to disable the rule.",
    ],
    ruleName: deliveries[0]!.ruleName,
    histories: [...new Set(deliveries.map(({ deliveryId }) => deliveryId))].flatMap(
      (id) => historyLink(links, id) ?? [],
    ),
    ...(page && { pageUrl: page }),
  });
}

/** An item of a message, the time to which its line refers, and the rules that notify of it. */
interface DistinctItem {
  item: Item;
  createdAt: string;
  ruleIds: Set<string>;
}

/**
 * Returns each item once, although several rules, or several deliveries of one rule, notify of it. The newest delivery's item
 * stays. Of two notifications about the same expiry, the one with the lower threshold stays.
 */
function distinctItems(sources: readonly MessageSource[]): DistinctItem[] {
  const byKey = new Map<string, DistinctItem>();
  for (const { delivery, items } of sources) {
    const { createdAt, ruleId } = delivery;
    for (const item of items) {
      const tracked = trackedItemOf(item);
      const key = `${item.kind}!${tracked ? alertKey(tracked) : item.id}`;
      const known = byKey.get(key);
      const ruleIds = (known?.ruleIds ?? new Set<string>()).add(ruleId);
      if (known === undefined || isNewer({ item, createdAt }, known)) byKey.set(key, { item, createdAt, ruleIds });
    }
  }
  return [...byKey.values()];
}

/** Compares items by their expiry, soonest first. Items that don't expire are last and keep their order. */
function compareExpiry(a: Item, b: Item): number {
  const [first, second] = [expiryOf(a), expiryOf(b)];
  return first === second ? 0 : first - second;
}

function expiryOf(item: Item): number {
  const subject = "of" in item ? item.of : item;
  return "expiresOn" in subject ? subject.expiresOn : Number.POSITIVE_INFINITY;
}

function isNewer(one: Pick<DistinctItem, "item" | "createdAt">, other: Pick<DistinctItem, "item" | "createdAt">) {
  const [a, b] = [one.item, other.item];
  if (a.kind === "asset" && b.kind === "asset" && a.expiresOn === b.expiresOn && a.threshold !== b.threshold)
    return a.threshold < b.threshold;
  return one.createdAt > other.createdAt;
}

/** Adds the names of the rules behind a line. None if all lines of the message have the same rule. */
const withRules = (line: MessageLine, names: string[]): MessageLine =>
  names.length === 0
    ? line
    : { ...line, facts: [...line.facts, [names.length === 1 ? "Rule" : "Rules", names.sort().join(", ")]] };

const NO_LINKS: Links = {
  portal: "",
  tenantId: undefined,
  publicBaseUrl: undefined,
  keyVaultSuffix: "",
  subscriptionName: () => undefined,
};

/** Returns the highest urgency of the items, as an index into `URGENCIES`. */
export const urgencyIn = (items: readonly Item[], createdAt: Date): number =>
  items.reduce(
    (highest, item) => Math.min(highest, URGENCIES.indexOf(rawLineOf(item, createdAt, NO_LINKS).urgency)),
    URGENCIES.length - 1,
  );

/** Returns the owner and location of an asset or violation, also for later items about it. Undefined for other items. */
function placeOf(item: Item, links: Links): Place | undefined {
  const subject = "of" in item ? item.of : item;
  if (subject.kind !== "asset" && subject.kind !== "violation") return undefined;
  const owner = subject.owner ?? "";
  const credential = subject.kind === "asset" ? subject.credential : undefined;
  const id = subject.kind === "asset" ? subject.id : subject.resourceId;
  if (credential || isCredentialId(id)) return { owner, ...directoryOf(id, credential, links) };
  const url =
    viewLink(links, `/inventory?vault=${encodePathSegment(subject.vaultName)}`) ??
    (subject.vaultId ? vaultLink(links, subject.vaultId, "") : undefined);
  return {
    owner,
    vault: subject.vaultName,
    subscription: subscriptionText(links, subject.subscriptionId),
    ...(url !== undefined && { url }),
  };
}

/**
 * Returns the application and the tenant of a credential, with the page of the application or of the B2C tenant.
 *
 * @param id - `entra.<tenant>.<application>.<key>` or `b2c.<tenant>.…`
 */
function directoryOf(id: string, credential: AssetItem["credential"], links: Links): Pick<Place, "directory" | "url"> {
  const [source, tenantId = "", appId = ""] = id.split(".");
  const isB2c = source === "b2c";
  const tenant = `${isB2c ? "B2C" : "Microsoft Entra"} tenant ${credential?.tenantDomain ?? credential?.tenantId ?? tenantId}`;
  const isOfApplication = credential !== undefined && (credential.kind ?? "application") === "application";
  const view = isB2c ? `/b2c/${encodePathSegment(tenantId)}` : `/rotation/apps/${encodePathSegment(appId)}`;
  const url = isB2c || isOfApplication ? viewLink(links, view) : undefined;
  return {
    directory: isOfApplication ? `Application ${credential.applicationName}, ${tenant}` : tenant,
    ...(url !== undefined && { url }),
  };
}

const AUTOMATION_HEADLINES: Partial<Record<AlertType, string>> = {
  rotationDue: "client secrets are due for rotation",
  rotationDone: "rotations completed",
  rotationFailed: "rotations need attention",
  syncFailed: "syncs failed",
  referenceUnresolved: "Key Vault references are not resolved",
  unexpectedReader: "assets were read by unexpected identities",
  rowUnreadable: "stored rows can't be read",
};

/** Returns the subject of a message with items of one alert type. */
function headline(alertType: AlertType, items: readonly Item[], lines: readonly MessageLine[]): string {
  const first = items[0];
  const line = lines[0];
  if (!first || !line) return "Nothing to report";
  if (items.length === 1) return `${line.title} ${line.what}`;
  switch (first.kind) {
    case "asset": {
      if (alertType === "lateRenewal") {
        const late = items.filter(({ kind }) => kind === "asset").length;
        const verb = late === 1 ? "certificate was" : "certificates were";
        return `${late} ${verb} not renewed in time; first ${line.title} ${line.what.replace(LATE_TEXT, "")}`;
      }
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
      return `${items.length} ${AUTOMATION_HEADLINES[alertType] ?? "items"}; first ${line.title} ${line.what}`;
    case "breakGlass":
      return `${items.length} password sign-ins while passwords are turned off; first ${line.title}`;
    case "scanFailure":
    case "stillFailing":
      return `${items.length} scan failures; first ${line.title} ${line.what}`;
    case "renewed":
    case "recovered":
      return `${items.length} alerts are resolved; first ${line.title} ${line.what}`;
    case "escalated":
      return `${items.length} alerts without acknowledgment; first ${line.title} ${line.what}`;
  }
}

function introOf(deliveries: readonly Omit<DeliveryRecord, "news">[], count: number): string {
  if (deliveries.some(({ test }) => test))
    return "This is a test of the alert rule. The item below is an example. No action is needed.";
  const since = deliveries.every(({ deliveryMode }) => deliveryMode === "digest") ? " since the last digest" : "";
  return `${count} new ${count === 1 ? "item" : "items"}${since}.`;
}

/** Returns the line of an item. Times such as "in 6 days" are relative to `createdAt`, the creation of the delivery. */
export const lineOf = (item: Item, createdAt: Date, links: Links): MessageLine =>
  toSingleLines(rawLineOf(item, createdAt, links));

/** Returns the line of an item, before `toSingleLines`: names in it can contain line breaks. */
function rawLineOf(item: Item, createdAt: Date, links: Links): MessageLine {
  switch (item.kind) {
    case "asset":
      return assetLine(item, createdAt, links);
    case "violation":
      return violationLine(item, links);
    case "scan":
      return scanLine(item, links);
    case "credential":
      return credentialLine(item, createdAt);
    case "breakGlass":
      return breakGlassLine(item);
    case "automation":
      return automationLine(item, links);
    case "scanFailure":
      return scanFailureLine(item, links);
    case "renewed":
    case "recovered":
      return resolvedLine(item, rawLineOf(item.of, createdAt, links));
    case "stillFailing":
    case "escalated":
      return persistingLine(item, rawLineOf(item.of, createdAt, links));
  }
}

const TYPE_NAMES = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;
const CREDENTIAL_NAMES = { secret: "Client secret", key: "Key", certificate: "Certificate" } as const;

function assetLine(item: AssetItem, createdAt: Date, links: Links): MessageLine {
  const remainingMs = item.expiresOn * 1000 - createdAt.getTime();
  const expiryText = dateText(new Date(item.expiresOn * 1000));
  const { credential } = item;
  return {
    ...(item.late ? lateUrgencyOf(remainingMs) : urgencyOf(remainingMs)),
    title: credential ? titleOfCredential(credential) : `${item.vaultName}/${item.name}`,
    what: `${item.late ? LATE_TEXT : ""}${remainingMs < 0 ? `expired ${ago(-remainingMs)}` : `expires ${within(remainingMs)}`}`,
    facts: [
      ["Type", credential ? credentialType(item.type, credential.kind) : TYPE_NAMES[item.type]],
      ...(
        [
          ["Tenant", credential?.tenantDomain],
          ["Client ID", credential?.appId],
          ["Key ID", credential?.keyId],
        ] as const
      ).flatMap(([label, value]): [string, string][] => (value === undefined ? [] : [[label, value]])),
      ...(credential ? [] : ([["Subscription", subscriptionText(links, item.subscriptionId)]] as [string, string][])),
      ...(item.late
        ? ([
            ["Renewer", RENEWER_NAMES[item.late.renewedBy].label],
            [LATE_SINCE, dateText(new Date(item.late.windowEnd * 1000))],
          ] as [string, string][])
        : []),
      [remainingMs < 0 ? "Expired" : "Expires", expiryText],
      ["Owner", item.owner ?? "none"],
      ...(item.threshold > 0 ? ([["Threshold", dayCount(item.threshold)]] as [string, string][]) : []),
    ],
    links: [
      ...linkTo("Open asset", assetPageLink(links, item.id)),
      ...linkTo("Open in the Azure portal", credential ? credentialsLink(links, credential) : assetLink(links, item)),
    ],
  };
}

/** Returns a link as a list. Empty without an address. */
const linkTo = (text: string, url: string | undefined): MessageLink[] => (url === undefined ? [] : [{ text, url }]);

/** Start of `what` for a certificate whose renewal is late. The time until its expiry follows. */
const LATE_TEXT = "was not renewed in time and ";
const LATE_SINCE = "Renewal late since";

/** Returns the urgency of a late renewal: at least `warning`, because someone must act even if the expiry is far away. */
const lateUrgencyOf = (remainingMs: number): Pick<MessageLine, "urgency" | "label"> => {
  const byTime = urgencyOf(remainingMs);
  return byTime.urgency === "notice" ? { urgency: "warning", label: "Renewal is late" } : byTime;
};

const credentialType = (type: AssetItem["type"], kind: CredentialKind = "application"): string => {
  if (kind === "policyKey") return `${TYPE_NAMES[type]} of a custom policy`;
  return kind === "identityProvider" ? "Identity provider" : `${CREDENTIAL_NAMES[type]} of an application`;
};

/** Returns the urgency of an item that expires, by the time left. @param remainingMs - Milliseconds until the expiry. */
function urgencyOf(remainingMs: number): Pick<MessageLine, "urgency" | "label"> {
  if (remainingMs < 0) return { urgency: "expired", label: "Expired" };
  if (remainingMs <= DAY_MS) return { urgency: "critical", label: "Within 24 hours" };
  if (remainingMs <= CRITICAL_DAYS * DAY_MS) return { urgency: "critical", label: `Within ${CRITICAL_DAYS} days` };
  return remainingMs <= WARNING_DAYS * DAY_MS
    ? { urgency: "warning", label: `Within ${WARNING_DAYS} days` }
    : { urgency: "notice", label: "Later" };
}

/** Returns the urgency of an item that does not expire. */
const labeled = (urgency: Urgency): Pick<MessageLine, "urgency" | "label"> => ({ urgency, label: LABELS[urgency] });
const LABELS: Record<Urgency, string> = {
  expired: "Act now",
  critical: "Urgent",
  warning: "Warning",
  notice: "Notice",
};

/** `expired` is the highest urgency, also of items that don't expire. Messages label it "Act now". */
const SEVERITY_URGENCY = { critical: "expired", high: "critical", medium: "warning", low: "notice" } as const;

function violationLine(item: ViolationItem, links: Links): MessageLine {
  return {
    ...labeled(SEVERITY_URGENCY[item.severity]),
    title: item.resourceId,
    what: `fails the check ${item.checkId}`,
    facts: [
      ["Finding", item.title],
      ["Severity", item.severity],
      ["Owner", item.owner ?? "none"],
      ...(isCredentialId(item.resourceId)
        ? []
        : ([
            ["Vault", item.vaultName],
            ["Subscription", subscriptionText(links, item.subscriptionId)],
          ] as [string, string][])),
      ["First seen", dateText(new Date(item.firstSeenAt))],
    ],
    links: [
      ...violationPage(item, links),
      ...linkTo("Open in the Azure portal", item.vaultId && vaultLink(links, item.vaultId, "")),
    ],
  };
}

/** Returns the link to the page of the violating asset, or to the violations of its vault or check. */
function violationPage({ resourceId, vaultName, checkId }: ViolationItem, links: Links): MessageLink[] {
  if (placesOf(resourceId).length > 0) return linkTo("Open asset", assetPageLink(links, resourceId));
  const filter = isCredentialId(resourceId)
    ? `check=${encodePathSegment(checkId)}`
    : `vault=${encodePathSegment(vaultName)}`;
  return linkTo("View violations", viewLink(links, `/compliance?${filter}`));
}

/** How a scan ended, as the predicate of the line. */
const SCAN_ENDS: Record<string, string> = {
  partial: "could not read every subscription and vault",
  failed: "failed",
  timedOut: "timed out",
};

/** The view of the vaults and subscriptions that scans can't read, with the reason and the remedy of each. */
const UNREAD_VIEW = "/vaults?unread=true&failing=true";

function scanLine(item: ScanItem, links: Links): MessageLine {
  return {
    ...labeled(item.status === "partial" ? "warning" : "critical"),
    title: `Scan ${item.id}`,
    what: SCAN_ENDS[item.status] ?? `ended as ${item.status}`,
    facts: [
      ["Mode", item.mode],
      ["Ended", dateText(new Date(item.finishedAt))],
      ["Unread vaults", `${item.vaultsFailed} of ${item.vaultsTotal}`],
      ...(item.message ? ([["Reason", item.message]] as [string, string][]) : []),
    ],
    links: linkTo("View what could not be read", viewLink(links, UNREAD_VIEW)),
  };
}

/** Codes of failures of a scan as a whole. */
const WHOLE_SCAN_CODES = new Set(["scan", "timedOut"]);

function scanFailureLine(item: ScanFailureItem, links: Links): MessageLine {
  const { subscriptionId, vaultName, list, code, message, remedy, scanId } = item;
  const facts: [string, string | undefined][] = [
    ["Vault", vaultName],
    ["Subscription", subscriptionId && subscriptionText(links, subscriptionId)],
    ["List", list],
    ["Reason", `${message} (${code})`],
    ["Next step", remedy],
    ["Found", dateText(new Date(item.at))],
    ["Scan", scanId],
  ];
  const resourceText =
    subscriptionId === undefined ? "Discovery scans" : `Subscription ${subscriptionText(links, subscriptionId)}`;
  return {
    ...labeled(vaultName === undefined ? "critical" : "warning"),
    title: vaultName ?? resourceText,
    what: WHOLE_SCAN_CODES.has(code) ? "do not complete" : "can't be read",
    facts: facts.flatMap(([label, value]): [string, string][] => (value ? [[label, value]] : [])),
    links: linkTo("View what could not be read", viewLink(links, UNREAD_VIEW)),
  };
}

/** How an alert was resolved, by the reason and the kind of item, as the predicate of the line. */
const END_TEXTS = {
  mended: { asset: "is resolved", violation: "is resolved", scanFailure: "can be read again" },
  removed: { asset: "was deleted", violation: "was deleted", scanFailure: "was deleted" },
  disabled: { asset: "was disabled", violation: "was disabled", scanFailure: "was disabled" },
  outOfScope: {
    asset: "is no longer monitored",
    violation: "is no longer monitored",
    scanFailure: "is no longer monitored",
  },
} as const;

const RESOLVED = { urgency: "notice", label: "Resolved" } as const;

/** Returns the line of a resolved alert, based on the line that reported it. */
function resolvedLine(item: RenewedItem | RecoveredItem, before: MessageLine): MessageLine {
  const since: [string, string] = ["First notified", dateText(new Date(item.since))];
  if (item.kind === "recovered") {
    const otherFacts = before.facts.filter(([label]) => label !== "Next step");
    const what = END_TEXTS[item.reason][item.of.kind];
    return { ...before, ...RESOLVED, what, facts: [...otherFacts, since] };
  }
  const { expiresOn, version, of } = item;
  const day = (seconds: number) => dateText(new Date(seconds * 1000));
  return {
    ...before,
    ...RESOLVED,
    what: expiresOn === undefined ? "was renewed and has no expiry" : `was renewed and expires on ${day(expiresOn)}`,
    facts: [
      ...before.facts.filter(
        ([label]) => label !== "Expires" && label !== "Expired" && label !== "Threshold" && label !== LATE_SINCE,
      ),
      ["Previous expiry", day(of.expiresOn)],
      ...(version === undefined ? [] : ([["Version", version]] as [string, string][])),
      since,
    ],
  };
}

/** Returns the line of a persisting failure or an escalation, based on the line that reported it. */
function persistingLine(item: StillFailingItem | EscalatedItem, before: MessageLine): MessageLine {
  const since: [string, string] = ["First notified", dateText(new Date(item.since))];
  if (item.kind === "stillFailing") return { ...before, what: `still ${before.what}`, facts: [...before.facts, since] };
  const escalated: [string, string] = ["Escalated", `not acknowledged within ${dayCount(item.afterDays)}`];
  return { ...before, facts: [...before.facts, since, escalated] };
}

const breakGlassLine = ({ username, address, at }: BreakGlassItem): MessageLine => ({
  ...labeled("expired"),
  title: username,
  what: "signed in with a password while passwords are turned off",
  facts: [
    ["Time", dateText(new Date(at))],
    ["Client address", address ?? "unknown"],
  ],
  links: [],
});

function automationLine(item: AutomationItem, links: Links): MessageLine {
  const { title, what, urgency, why, done, safe, next, rotationId, recordId, appId } = item;
  const facts: [string, string][] = [
    ["Reason", why],
    ["Done so far", done],
    ["Current state", safe],
    ["Next step", next],
    ["Client ID", appId ?? ""],
    ["Rotation", rotationId ?? ""],
    ["Sync record", recordId ?? ""],
  ];
  return {
    ...labeled(urgency),
    title,
    what,
    facts: facts.filter(([, value]) => value !== ""),
    links: automationPage(item, links),
  };
}

/** Returns the link to the page of the rotation, the copy, the references of a vault, or the application. */
function automationPage({ rotationId, recordId, vaultName, appId }: AutomationItem, links: Links): MessageLink[] {
  if (rotationId) return linkTo("View rotation", viewLink(links, `/rotation/${encodePathSegment(rotationId)}`));
  if (recordId) return linkTo("View copy", viewLink(links, `/sync/${encodePathSegment(recordId)}`));
  if (vaultName)
    return linkTo(
      "View references",
      viewLink(links, `/dependencies?vault=${encodePathSegment(vaultName)}&resolved=false`),
    );
  return appId ? linkTo("View application", viewLink(links, `/rotation/apps/${encodePathSegment(appId)}`)) : [];
}

function credentialLine(item: CredentialItem, createdAt: Date): MessageLine {
  const remainingMs = item.expiresOn * 1000 - createdAt.getTime();
  return {
    ...urgencyOf(remainingMs),
    title: `${item.what} “${item.name}”`,
    what: remainingMs < 0 ? `expired ${ago(-remainingMs)}` : `expires ${within(remainingMs)}`,
    facts: [
      ["Expires", dateText(new Date(item.expiresOn * 1000))],
      ...(item.owner === undefined ? [] : ([["User", item.owner]] as [string, string][])),
      ["Threshold", dayCount(item.threshold)],
    ],
    links: [],
  };
}

/** Returns a date and time in UTC, with the month's name to avoid ambiguity. */
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

/** Returns a time until the expiry as text, rounded down: `in 6 days`. */
function within(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= 1) return `in ${dayCount(days)}`;
  const hours = Math.floor(milliseconds / HOUR_MS);
  return hours >= 1 ? `in ${hours} ${hours === 1 ? "hour" : "hours"}` : "within the hour";
}

/** Returns a time since the expiry as text, rounded down: `2 days ago`. */
function ago(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= 1) return `${dayCount(days)} ago`;
  const hours = Math.floor(milliseconds / HOUR_MS);
  return hours >= 1 ? `${hours} ${hours === 1 ? "hour" : "hours"} ago` : "within the last hour";
}
