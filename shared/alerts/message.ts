import { type CredentialKind, isCredentialId, locationsOf, titleOfCredential } from "../inventory/asset.ts";
import { RENEWER_NAMES } from "../inventory/renewal.ts";
import { assetLink, credentialsLink, encodePathSegment, vaultLink } from "../platform/azure/portal.ts";
import { PRODUCT } from "../platform/product.ts";
import { DAY_MS } from "../platform/time.ts";
import type { DeliveryRecord } from "./delivery.ts";
import { type Headline, headlineOf, introOf, isResolution, LATE_TEXT, subjectWithin } from "./headline.ts";
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
import { alertKey, isDeniedAccess, trackedItemOf, URGENCIES } from "./items.ts";
import { assetPageLink, historyLink, type Links, subscriptionText, viewLink } from "./links.ts";
import { type ItemLocation, type MessageLine, type MessageLink, NO_OWNER } from "./message-line.ts";
import { dayCount, expiryText, instantText, timeText } from "./time-text.ts";

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

/** The content of a message, independent of its channel. */
export interface Message {
  /** The full subject. Channels with a limit use `subjectWithin` with the `headline`. */
  subject: string;
  headline: Headline;
  /** One sentence under the subject. */
  intro: string;
  lines: MessageLine[];
  /** Why the recipient gets the message, and how to stop it. */
  why: string[];
  ruleName: string;
  /**
   * Links to the notifications on the web page. Empty if PUBLIC_BASE_URL is not set, and if the only one is the main link.
   */
  histories: string[];
  /** The main link, directly below the intro: the page where the problem can be fixed. */
  mainLink?: MessageLink;
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
    .map(({ item, createdAt, ruleIds }) => {
      const names = ruleNames.size === 1 ? [] : [...ruleIds].map((id) => ruleNames.get(id)!);
      return { item, line: withRules(lineWithLocation(item, new Date(createdAt), links), names) };
    })
    // Resolved items are last.
    .sort(
      (a, b) =>
        Number(isResolution(a.item)) - Number(isResolution(b.item)) ||
        URGENCIES.indexOf(a.line.urgency) - URGENCIES.indexOf(b.line.urgency) ||
        compareExpiry(a.item, b.item),
    );
  const lines = entries.map(({ line }) => line);
  const deliveries = sources.map(({ delivery }) => delivery);
  const types = new Set(deliveries.map(({ alertType }) => alertType));
  const isDigest = deliveries.every(({ deliveryMode }) => deliveryMode === "digest");
  // A test is never combined with other deliveries: it has a mailbox of its own.
  const isTest = deliveries.some(({ test }) => test);
  const items = entries.map(({ item }) => item);
  const histories = [...new Set(deliveries.map(({ deliveryId }) => deliveryId))].flatMap(
    (id) => historyLink(links, id) ?? [],
  );
  const mainLink = mainLinkOf(entries, histories, links);
  const headline = headlineOf(types, entries, `${isTest ? "[Test] " : ""}${isDigest ? "Digest: " : ""}`);
  const [ruleName] = ruleNames.size === 1 ? [...ruleNames.values()] : [];
  return toSingleLines({
    subject: subjectWithin(headline, Number.POSITIVE_INFINITY),
    headline,
    intro: isTest
      ? "This is a test of the alert rule. The item below is an example. No action is needed."
      : introOf(types, items, { isDigest, ruleName }),
    lines,
    why: [
      `Sent by the ${PRODUCT}, which monitors the expiry, compliance and rotation of secrets, keys and certificates.`,
      ...[...ruleNames].map(
        ([id, name]) => `You receive this notification because of the alert rule “${name}” (${id}).`,
      ),
      ...sources.flatMap(({ reason }) => (reason ? [`Not sent to an owner: ${reason}.`] : [])),
      ...new Set(
        sources.flatMap(({ owner }) =>
          owner ? [`It is sent to you because a tag names you as the owner: “${owner}”.`] : [],
        ),
      ),
      `To stop these notifications, ${lines.some(({ location }) => location) ? "snooze the asset on its page, or " : ""}ask an administrator to remove you from the rule's recipients or to disable the rule.`,
    ],
    ruleName: deliveries[0]!.ruleName,
    histories: histories.length === 1 && histories[0] === mainLink?.url ? [] : histories,
    ...(mainLink && { mainLink }),
  });
}

/** Maximum length of the main link's address. It counts toward a mail's size, and a truncated address would not work. */
const MAX_MAIN_LINK = 2000;

/**
 * Returns the main link of a message: to the page of the items if all have the same page, otherwise to the notification, which
 * links the page of each item. For several notifications, it is the Alerts page. Undefined if PUBLIC_BASE_URL is not set and the
 * items have no common page in the Azure portal.
 */
function mainLinkOf(
  entries: readonly { item: Item; line: MessageLine }[],
  [history, ...otherHistories]: readonly string[],
  links: Links,
): MessageLink | undefined {
  const [first] = entries[0]?.line.links ?? [];
  if (first && first.url.length <= MAX_MAIN_LINK && entries.every(({ line }) => line.links[0]?.url === first.url))
    return first;
  const alerts = viewLink(links, "/alerts");
  if (otherHistories.length > 0 && alerts) return { text: "Open all alerts", url: alerts };
  if (history === undefined) return undefined;
  const nouns = new Set(entries.map(({ item }) => nounOf(item)));
  const [noun] = nouns.size === 1 ? [...nouns] : ["alert"];
  return { text: entries.length === 1 ? `Open the ${noun}` : `Open the ${entries.length} ${noun}s`, url: history };
}

/** Returns what an item is about, for the main link. Glossary: a credential is an asset of an application or a B2C tenant. */
function nounOf(item: Item): string {
  if (isResolution(item)) return "resolved alert";
  if (item.kind === "credential") return "credential";
  if (item.kind === "violation") return "violation";
  if (item.kind !== "asset") return "alert";
  if (item.late) return "certificate";
  return item.credential ? "credential" : "asset";
}

/** An item of a message, the time to which its line refers, and the rules behind the item. */
interface DistinctItem {
  item: Item;
  createdAt: string;
  ruleIds: Set<string>;
}

/**
 * Returns each item once, although several rules, or several deliveries of one rule, contain the item. The newest delivery's item
 * stays. If two notifications are about the same expiry, the one with the lower threshold stays.
 */
function distinctItems(sources: readonly MessageSource[]): DistinctItem[] {
  const byKey = new Map<string, DistinctItem>();
  for (const { delivery, items } of sources) {
    const { createdAt, ruleId } = delivery;
    for (const item of items) {
      const tracked = trackedItemOf(item);
      const key = `${item.kind}!${tracked ? alertKey(tracked) : item.id}`;
      const earlier = byKey.get(key);
      const ruleIds = (earlier?.ruleIds ?? new Set<string>()).add(ruleId);
      if (earlier === undefined || isNewer({ item, createdAt }, earlier)) byKey.set(key, { item, createdAt, ruleIds });
    }
  }
  return [...byKey.values()];
}

/** Compares items by their expiry, soonest first. Items that don't expire are last and keep their order. */
function compareExpiry(a: Item, b: Item): number {
  const [first, second] = [expiryOf(a), expiryOf(b)];
  // Two items without an expiry: Infinity minus Infinity is NaN.
  return first === second ? 0 : first - second;
}

function expiryOf(item: Item): number {
  const subject = "of" in item ? item.of : item;
  return "expiresOn" in subject ? subject.expiresOn : Number.POSITIVE_INFINITY;
}

/** Returns whether the first item replaces the second, which is about the same thing. */
function isNewer(first: Pick<DistinctItem, "item" | "createdAt">, second: Pick<DistinctItem, "item" | "createdAt">) {
  const [a, b] = [first.item, second.item];
  if (a.kind === "asset" && b.kind === "asset" && a.expiresOn === b.expiresOn && a.threshold !== b.threshold)
    return a.threshold < b.threshold;
  return first.createdAt > second.createdAt;
}

/** Adds the names of the rules behind a line. None if all lines of the message have the same rule. */
const withRules = (line: MessageLine, names: string[]): MessageLine =>
  names.length === 0
    ? line
    : { ...line, facts: [...line.facts, [names.length === 1 ? "Rule" : "Rules", names.sort().join(", ")]] };

/** For `urgencyIn`: the urgency of a line does not depend on its links. */
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
function locationOf(item: Item, links: Links): ItemLocation | undefined {
  const subject = "of" in item ? item.of : item;
  if (subject.kind !== "asset" && subject.kind !== "violation") return undefined;
  const owner = subject.owner ?? "";
  const credential = subject.kind === "asset" ? subject.credential : undefined;
  const id = subject.kind === "asset" ? subject.id : subject.resourceId;
  if (credential || isCredentialId(id)) {
    const directory = directoryOf(id, credential, links);
    // The page of the credential says where its application's owner is assigned.
    const assignOwner = owner === "" && assetPageLink(links, id);
    return { owner, ...directory, ...(assignOwner && { assignOwner }) };
  }
  const url =
    viewLink(links, `/inventory?vault=${encodePathSegment(subject.vaultName)}`) ??
    (subject.vaultId ? vaultLink(links, subject.vaultId, "") : undefined);
  const assignOwner =
    owner === "" && viewLink(links, `/inventory?vault=${encodePathSegment(subject.vaultName)}&hasOwner=false`);
  return {
    owner,
    ...(assignOwner && { assignOwner }),
    vault: subject.vaultName,
    // Without its ID, which would make the heading hard to read. The linked page has the ID.
    subscription: links.subscriptionName(subject.subscriptionId) ?? subject.subscriptionId,
    ...(url !== undefined && { url }),
  };
}

/**
 * Returns the application and the tenant of a credential, with the page of the application or of the B2C tenant.
 *
 * @param id - `entra.<tenant>.<application>.<key>` or `b2c.<tenant>.…`
 */
function directoryOf(
  id: string,
  credential: AssetItem["credential"],
  links: Links,
): Pick<ItemLocation, "directory" | "url"> {
  const [source, tenantId = "", appId = ""] = id.split(".");
  const isB2c = source === "b2c";
  const isOwnTenant = !isB2c && tenantId.toLowerCase() === links.tenantId?.toLowerCase();
  const tenant = isOwnTenant
    ? "Microsoft Entra ID"
    : `${isB2c ? "B2C" : "Microsoft Entra"} tenant ${credential?.tenantDomain ?? credential?.tenantId ?? tenantId}`;
  const isOfApplication = credential !== undefined && (credential.kind ?? "application") === "application";
  // A violation has no `credential`, so its heading names only the tenant. The page of one application would be the wrong link.
  const view = isB2c ? `/b2c/${encodePathSegment(tenantId)}` : `/rotation/apps/${encodePathSegment(appId)}`;
  const url = isB2c || isOfApplication ? viewLink(links, view) : undefined;
  return {
    directory: isOfApplication ? `Application ${credential.applicationName}, ${tenant}` : tenant,
    ...(url !== undefined && { url }),
  };
}

/** Returns the line of an item. Times such as "in 6 days" are relative to `createdAt`, the creation of the delivery. */
export const lineOf = (item: Item, createdAt: Date, links: Links): MessageLine =>
  toSingleLines(lineWithLocation(item, createdAt, links));

/** Returns the line of an item with its owner and location, before `toSingleLines`. */
function lineWithLocation(item: Item, createdAt: Date, links: Links): MessageLine {
  const line = rawLineOf(item, createdAt, links);
  const location = locationOf(item, links);
  return location ? { ...line, location } : line;
}

/** Returns the line of an item, before `toSingleLines`: names in it can contain line breaks. */
function rawLineOf(item: Item, createdAt: Date, links: Links): MessageLine {
  switch (item.kind) {
    case "asset":
      return assetLine(item, createdAt, links);
    case "violation":
      return violationLine(item, createdAt, links);
    case "scan":
      return scanLine(item, createdAt, links);
    case "credential":
      return credentialLine(item, createdAt, links);
    case "breakGlass":
      return breakGlassLine(item, createdAt, links);
    case "automation":
      return automationLine(item, links);
    case "scanFailure":
      return scanFailureLine(item, createdAt, links);
    case "renewed":
    case "recovered":
      return resolvedLine(item, rawLineOf(item.of, createdAt, links), createdAt);
    case "stillFailing":
    case "escalated":
      return persistingLine(item, rawLineOf(item.of, createdAt, links), createdAt);
  }
}

const TYPE_NAMES = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;
const CREDENTIAL_NAMES = { secret: "Client secret", key: "Key", certificate: "Certificate" } as const;

function assetLine(item: AssetItem, createdAt: Date, links: Links): MessageLine {
  const remainingMs = item.expiresOn * 1000 - createdAt.getTime();
  const { credential } = item;
  return {
    ...(item.late ? lateUrgencyOf(remainingMs) : urgencyOf(remainingMs)),
    title: credential ? titleOfCredential(credential) : `${item.vaultName}/${item.name}`,
    what: `${item.late ? LATE_TEXT : ""}${expiryText(remainingMs)}`,
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
            [LATE_SINCE, timeText(new Date(item.late.windowEnd * 1000), createdAt)],
          ] as [string, string][])
        : []),
      // Without the time left, which is in `what`: the size of messages is limited.
      [remainingMs < 0 ? "Expired" : "Expires", instantText(new Date(item.expiresOn * 1000))],
      ["Owner", item.owner || NO_OWNER],
      ...notifiedBecause(item.threshold, remainingMs),
    ],
    links: [
      ...linkTo(credential ? "Open credential" : "Open asset", assetPageLink(links, item.id)),
      ...linkTo("Open in the Azure portal", credential ? credentialsLink(links, credential) : assetLink(links, item)),
    ],
  };
}

/** Returns why a rule notified about an item that expires. None for rules without thresholds. */
function notifiedBecause(thresholdDays: number, remainingMs: number): [string, string][] {
  if (thresholdDays === 0) return [];
  const days = dayCount(thresholdDays);
  // An item can expire before its notification, for example if the evaluation was late.
  const reason = remainingMs < 0 ? `it has expired, and the rule notifies ${days} before` : `it expires within ${days}`;
  return [[NOTIFIED_BECAUSE, reason]];
}
const NOTIFIED_BECAUSE = "Notified because";

/** Returns a link as a list. Empty without an address. */
const linkTo = (text: string, url: string | undefined): MessageLink[] => (url === undefined ? [] : [{ text, url }]);

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

function violationLine(item: ViolationItem, createdAt: Date, links: Links): MessageLine {
  return {
    ...labeled(SEVERITY_URGENCY[item.severity]),
    title: nameOfResource(item),
    what: `fails a check: ${item.title}`,
    facts: [
      ["Type", RESOURCE_NAMES[item.resourceType] ?? item.resourceType],
      ["Check", item.checkId],
      // Its own name, because incidents have a severity of PagerDuty too.
      ["Check severity", item.severity],
      ["Owner", item.owner || NO_OWNER],
      ...(isCredentialId(item.resourceId)
        ? []
        : ([
            ["Vault", item.vaultName],
            ["Subscription", subscriptionText(links, item.subscriptionId)],
          ] as [string, string][])),
      ["First seen", timeText(new Date(item.firstSeenAt), createdAt)],
    ],
    links: [...violationPage(item, links), ...linkTo("Open in the Azure portal", portalPageOf(item, links))],
  };
}

/** The types of violating resources in messages. */
const RESOURCE_NAMES: Record<string, string> = { ...TYPE_NAMES, vault: "Key vault" };

/** Returns the name of a violating asset in the form of other alerts, `kv-payments/db-password`, or the resource's ID. */
function nameOfResource({ resourceId, resourceType, vaultName }: ViolationItem): string {
  const prefix = `${vaultName}.${resourceType}.`;
  const isOfVault = resourceId.length > prefix.length && resourceId.toLowerCase().startsWith(prefix.toLowerCase());
  return isOfVault ? `${vaultName}/${resourceId.slice(prefix.length)}` : resourceId;
}

/** Returns the address of the violating asset or vault in the Azure portal. Undefined if its vault is unknown. */
function portalPageOf({ resourceId, resourceType, vaultId }: ViolationItem, links: Links): string | undefined {
  if (vaultId === undefined) return undefined;
  const asset = isCredentialId(resourceId)
    ? undefined
    : locationsOf(resourceId).find(({ type }) => type === resourceType);
  return asset ? assetLink(links, asset) : vaultLink(links, vaultId, "");
}

/** Returns the link to the page of the violating asset, or to the violations of its vault or check. */
function violationPage({ resourceId, vaultName, checkId }: ViolationItem, links: Links): MessageLink[] {
  if (locationsOf(resourceId).length > 0) return linkTo("Open asset", assetPageLink(links, resourceId));
  const filter = isCredentialId(resourceId)
    ? `check=${encodePathSegment(checkId)}`
    : `vault=${encodePathSegment(vaultName)}`;
  return linkTo("Open the violations", viewLink(links, `/compliance?${filter}`));
}

/** How a scan ended, as the predicate of the line. */
const SCAN_ENDS: Record<string, string> = {
  partial: "could not read every subscription and vault",
  failed: "failed",
  timedOut: "timed out",
};

/** The view of the vaults and subscriptions that scans can't read, with the reason and the remedy of each. */
const UNREAD_VIEW = "/vaults?unread=true&failing=true";
const UNREAD_LINK = "Show what can't be read and the fix";

function scanLine(item: ScanItem, createdAt: Date, links: Links): MessageLine {
  return {
    ...labeled(item.status === "partial" ? "warning" : "critical"),
    title: `Scan ${item.id}`,
    what: SCAN_ENDS[item.status] ?? `ended as ${item.status}`,
    facts: [
      ["Mode", item.mode],
      ["Ended", timeText(new Date(item.finishedAt), createdAt)],
      ["Unread vaults", `${item.vaultsFailed} of ${item.vaultsTotal}`],
      ...(item.message ? ([["Reason", item.message]] as [string, string][]) : []),
    ],
    links: linkTo(UNREAD_LINK, viewLink(links, UNREAD_VIEW)),
  };
}

/** Codes of failures of a scan as a whole. */
const WHOLE_SCAN_CODES = new Set(["scan", "timedOut"]);

function scanFailureLine(item: ScanFailureItem, createdAt: Date, links: Links): MessageLine {
  const { subscriptionId, vaultName, list, code, message, remedy, scanId } = item;
  const access = isDeniedAccess(item) ? missingAccess(item, links) : undefined;
  const facts: [string, string | undefined][] = [
    ["Reason", `${message} (${code})`],
    ["Next step", remedy],
    ["Identity", access?.identity],
    ["Scope", access?.scope],
    // The scope names them.
    ["Vault", access ? undefined : vaultName],
    ["Subscription", access || subscriptionId === undefined ? undefined : subscriptionText(links, subscriptionId)],
    ["List", list],
    ["Found", timeText(new Date(item.at), createdAt)],
    ["Scan", scanId],
  ];
  const resourceText =
    subscriptionId === undefined
      ? "Discovery scans"
      : `Subscription ${links.subscriptionName(subscriptionId) ?? subscriptionId}`;
  return {
    ...labeled(vaultName === undefined ? "critical" : "warning"),
    title: vaultName === undefined ? resourceText : `Vault ${vaultName}`,
    what: WHOLE_SCAN_CODES.has(code) ? "do not complete" : "can't be read",
    facts: facts.flatMap(([label, value]): [string, string][] => (value ? [[label, value]] : [])),
    ...(access?.command !== undefined && { command: access.command }),
    links: linkTo(UNREAD_LINK, viewLink(links, UNREAD_VIEW)),
  };
}

/** Names that are safe in a command. A stored name with other characters could add another command. */
const SAFE_NAME = /^[0-9A-Za-z-]+$/;
/** The lists that the role Key Vault Reader can read. */
const LISTS_OF_READER = new Set(["secrets", "keys", "certificates", "rotationPolicies"]);

/** Returns which identity misses access to what, and the command that gives it the access. Undefined if the identity is unknown. */
function missingAccess(
  { subscriptionId, vaultName, list }: ScanFailureItem,
  links: Links,
): { identity: string; scope: string | undefined; command?: string } | undefined {
  const { identity: principal } = links;
  if (!principal) return undefined;
  const name = principal.name === undefined ? "the service's identity" : principal.name;
  const identity = `${name} (object ID ${principal.objectId})`;
  const subscription = subscriptionId && `subscription ${subscriptionText(links, subscriptionId)}`;
  if (subscriptionId === undefined || !SAFE_NAME.test(subscriptionId)) return { identity, scope: subscription };
  // The reason names the role of a subscription, which a template creates, so no single command assigns it.
  if (vaultName === undefined) return { identity, scope: subscription };
  const scope = `vault ${vaultName} in ${subscription}`;
  if (!SAFE_NAME.test(vaultName) || !LISTS_OF_READER.has(list ?? "")) return { identity, scope };
  const vaultId = `$(az keyvault show --subscription "${subscriptionId}" --name "${vaultName}" --query id --output tsv)`;
  const command = `az role assignment create --assignee-object-id "${principal.objectId}" --assignee-principal-type ${principal.type} --role "Key Vault Reader" --scope "${vaultId}"`;
  return { identity, scope, command };
}

/** How an alert was resolved, by the reason and the kind of item, as the predicate of the line. */
const END_TEXTS = {
  mended: { asset: "is no longer late", violation: "no longer has the problem", scanFailure: "can be read again" },
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
function resolvedLine(item: RenewedItem | RecoveredItem, reported: MessageLine, createdAt: Date): MessageLine {
  const { command: _, facts: reportedFacts, ...reportedLine } = reported;
  const facts = reportedFacts.filter(([label]) => !OPEN_FACTS.has(label));
  const times: [string, string][] = [
    ["First notified", instantText(new Date(item.since))],
    ["Resolved", instantText(createdAt)],
  ];
  if (item.kind === "recovered") {
    const { of, reason } = item;
    const isFixed = reason === "mended" && of.kind === "violation";
    const what = `${END_TEXTS[reason][of.kind]}${isFixed ? ` “${of.title}”` : ""}`;
    // The reason of a failure is that of the last scan that found it.
    const earlier = facts.map(([label, value]): [string, string] => [
      label === "Reason" ? "Earlier reason" : label,
      value,
    ]);
    // The view of unread resources no longer shows this one.
    const linksAfter = of.kind === "scanFailure" ? [] : reportedLine.links;
    return { ...reportedLine, ...RESOLVED, what, facts: [...earlier, ...times], links: linksAfter };
  }
  const { expiresOn, version, of } = item;
  const time = (seconds: number) => instantText(new Date(seconds * 1000));
  return {
    ...reportedLine,
    ...RESOLVED,
    what: `was renewed and ${expiresOn === undefined ? "has no expiry" : expiryText(expiresOn * 1000 - createdAt.getTime())}`,
    facts: [
      ...facts.filter(([label]) => label !== "Expires" && label !== "Expired"),
      ["New expiry", expiresOn === undefined ? "none" : time(expiresOn)],
      // Without the time left, because the old version no longer matters.
      ["Old expiry", time(of.expiresOn)],
      ...(version === undefined ? [] : ([["New version", version]] as [string, string][])),
      ...times,
    ],
  };
}

/** Labels of facts that are only about an open alert. */
const OPEN_FACTS = new Set([
  "Next step",
  "Identity",
  "Scope",
  "Scan",
  "Found",
  "First seen",
  NOTIFIED_BECAUSE,
  LATE_SINCE,
]);

const firstNotified = (since: string, createdAt: Date): [string, string] => [
  "First notified",
  timeText(new Date(since), createdAt),
];

/** Returns the line of a persisting failure or an escalation, based on the line that reported it. */
function persistingLine(item: StillFailingItem | EscalatedItem, reported: MessageLine, createdAt: Date): MessageLine {
  const since = firstNotified(item.since, createdAt);
  if (item.kind === "stillFailing")
    return { ...reported, what: `still ${reported.what}`, facts: [...reported.facts, since] };
  const escalated: [string, string] = ["Escalated", `not acknowledged within ${dayCount(item.afterDays)}`];
  return { ...reported, facts: [...reported.facts, since, escalated] };
}

const breakGlassLine = ({ username, address, at }: BreakGlassItem, createdAt: Date, links: Links): MessageLine => ({
  ...labeled("expired"),
  title: username,
  what: "signed in with a password while passwords are turned off",
  facts: [
    ["Time", timeText(new Date(at), createdAt)],
    ["Client address", address ?? "unknown"],
  ],
  links: linkTo("Open sessions and users", viewLink(links, "/access")),
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
    ["Sync", recordId ?? ""],
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
  if (rotationId) return linkTo("Open the rotation", viewLink(links, `/rotation/${encodePathSegment(rotationId)}`));
  if (recordId) return linkTo("Open the sync", viewLink(links, `/sync/${encodePathSegment(recordId)}`));
  if (vaultName)
    return linkTo(
      "Open the references",
      viewLink(links, `/dependencies?vault=${encodePathSegment(vaultName)}&resolved=false`),
    );
  return appId ? linkTo("Open the application", viewLink(links, `/rotation/apps/${encodePathSegment(appId)}`)) : [];
}

function credentialLine(item: CredentialItem, createdAt: Date, links: Links): MessageLine {
  const usage = usageOf(item);
  const remainingMs = item.expiresOn * 1000 - createdAt.getTime();
  return {
    ...urgencyOf(remainingMs),
    title: `${item.what} “${item.name}”`,
    what: expiryText(remainingMs),
    facts: [
      ["Expires", timeText(new Date(item.expiresOn * 1000), createdAt)],
      ...(item.owner === undefined ? [] : ([["User", item.owner]] as [string, string][])),
      ...(usage === undefined ? [] : ([["When it expires", usage.stops]] as [string, string][])),
      ...notifiedBecause(item.threshold, remainingMs),
    ],
    links: usage === undefined ? [] : linkTo("Replace the credential", viewLink(links, usage.view)),
  };
}

/**
 * The view in which users replace a credential of the service, and what stops when it expires, by the first word of the
 * credential's ID.
 */
const USAGES = new Map([
  ["apiToken", { view: "/access", stops: "Programs that call this service with the token get no access." }],
  ["sso", { view: "/sso", stops: "Nobody can sign in to this service through single sign-on." }],
  ["licence", { view: "/license", stops: "PRO features, such as rotation and sync, stop. Their data stays." }],
  ["sync", { view: "/sync", stops: "Syncs no longer update the copies of secrets that they write with it." }],
  ["b2c", { view: "/b2c", stops: "This service can no longer read the B2C tenant." }],
]);

const usageOf = ({ id }: CredentialItem): { view: string; stops: string } | undefined =>
  USAGES.get(/^\w+/.exec(id)?.[0] ?? "");
