import { counted } from "../platform/counted.ts";
import type { Item, ScanFailureItem } from "./items.ts";
import { type MessageLine, NO_OWNER, truncate } from "./message-line.ts";
import { type AlertType, SEVERITIES } from "./rule.ts";

/** The subject of a message and the sentences below it: the problem, its extent and urgency, the owners, and the next step. */

/** An item and its line. */
export interface HeadlineEntry {
  item: Item;
  line: MessageLine;
}

/** A subject in its parts, so that each channel can shorten it to its limit and keep the most important parts. */
export interface Headline {
  /** The parts of the full subject. `name` is the title of the most urgent item. */
  start: string;
  name: string;
  end: string;
  /** Subjects without the name, longest first. Empty if the message has only one item. */
  shorter: string[];
}

/** Minimum length of a shortened name. */
const MIN_NAME = 20;

/** Returns the longest form of a subject that has at most `maxLength` characters. */
export function subjectWithin({ start, name, end, shorter }: Headline, maxLength: number): string {
  const full = start + name + end;
  if (full.length <= maxLength) return full;
  const remaining = maxLength - start.length - end.length;
  if (shorter.length === 0 && remaining >= MIN_NAME) return start + truncate(name, remaining) + end;
  return truncate(shorter.find(({ length }) => length <= maxLength) ?? shorter.at(-1) ?? full, maxLength);
}

/** Start of `what` for a certificate whose renewal is late. The time until its expiry follows. */
export const LATE_TEXT = "was not renewed in time and ";
/** Maximum length of an owner in a subject. */
const MAX_OWNER = 60;

/** What follows the number of items, for more than one item of a type. */
const AUTOMATION_HEADLINES: Partial<Record<AlertType, string>> = {
  rotationDue: "client secrets are due for rotation",
  rotationDone: "rotations completed",
  rotationFailed: "rotations need attention",
  syncFailed: "syncs failed",
  referenceUnresolved: "Key Vault references are not resolved",
  unexpectedReader: "assets were read by unexpected identities",
  rowUnreadable: "stored rows can't be read",
  staleEndpoint: "endpoints don't serve their certificate as they should",
  auditStreamFailing: "audit streams don't reach their receivers",
};

const IN_EACH_ALERT = "Each alert names the next step.";

/** The next step of the recipient, by the type of the rule. `{a}` stands for "the" in a message about one item, or for "a". */
const NEXT_STEPS: Partial<Record<AlertType, string>> = {
  expiration: "Open {an} asset to see who uses it, and to rotate, renew or snooze it.",
  expired: "Open {an} asset to see who still uses it, and to rotate, renew or disable it.",
  credentialExpiry: "Open {a} credential to see who uses it and how to replace it, or to snooze it.",
  lateRenewal: "Find out why the renewer stopped, or renew the certificate yourself: open {a} certificate for both.",
  complianceViolation: "Open {an} asset for the fix, or to exempt the violation.",
  scanFailure:
    "The service does not monitor the assets there until it can read them again. Each alert names the next step.",
  serviceCredentialExpiry: "This service or its users lose access when the credential expires. Replace it before.",
  rotationDue: IN_EACH_ALERT,
  rotationFailed: IN_EACH_ALERT,
  syncFailed: IN_EACH_ALERT,
  referenceUnresolved: IN_EACH_ALERT,
  unexpectedReader: IN_EACH_ALERT,
  rowUnreadable: IN_EACH_ALERT,
  staleEndpoint: IN_EACH_ALERT,
  auditStreamFailing: IN_EACH_ALERT,
  breakGlass: "If nobody expected this sign-in, end the sessions of the account and change its password.",
};

/**
 * Returns the next step of the recipient of a message. Undefined for types of rules whose messages have none.
 *
 * @param count - Number of open alerts in the message.
 */
export const nextStepOf = (type: AlertType, count: number): string | undefined =>
  NEXT_STEPS[type]?.replaceAll(/\{(an?)\}/g, (_, article: string) => (count === 1 ? "the" : article));

const ACKNOWLEDGE =
  "Nobody acknowledged the escalated alerts in time. To acknowledge them, open this notification and select Acknowledge all.";

/** The kinds of items about something that scans can't read, notified for the first time and again. */
const UNREAD_KINDS: ReadonlySet<Item["kind"]> = new Set(["scanFailure", "stillFailing"]);

/** Returns whether the item says that an alert is resolved. */
export const isResolution = ({ kind }: Item): boolean => kind === "renewed" || kind === "recovered";

/**
 * Returns the subject of a message: what, how many, how soon, whose, and the most urgent item. The entries are in display order.
 *
 * @param prefix - Such as `[Test] `.
 */
export function headlineOf(types: ReadonlySet<AlertType>, entries: readonly HeadlineEntry[], prefix: string): Headline {
  const [first] = entries;
  if (!first) return { start: `${prefix}Nothing to report`, name: "", end: "", shorter: [] };
  if (entries.length === 1) {
    const { start, ...headline } = lineHeadline(first.line);
    return { ...headline, start: prefix + start };
  }
  const open = entries.filter(({ item }) => !isResolution(item));
  const resolved = entries.length - open.length;
  const problem = commonProblemOf(open);
  const counts =
    open.length === 0
      ? `${resolved} alerts resolved`
      : `${countsOf(types, open, problem)}${resolved > 0 ? `, ${resolved} resolved` : ""}`;
  const { title, what } = first.line;
  // The counts already name the common problem, and the first entry is an open one.
  const predicate = problem === "notRenewed" ? what.slice(LATE_TEXT.length) : what;
  // The counts of late renewals don't say how soon the certificates expire.
  const countsWithTime = problem === "notRenewed" ? `${counts}, the first ${predicate}` : counts;
  return {
    start: `${prefix}${counts}${ownersText(entries)}; first `,
    name: title,
    end: problem === "unread" ? "" : ` ${predicate}`,
    shorter: [
      `${prefix}${countsWithTime}${ownersText(entries)}`,
      `${prefix}${countsWithTime}${ownersText(entries, "numbers")}`,
    ],
  };
}

/** A problem that all open items share and that their count names, so that the subject does not repeat it. */
type CommonProblem = "unread" | "notRenewed";

function commonProblemOf(open: readonly HeadlineEntry[]): CommonProblem | undefined {
  if (open.length === 0) return undefined;
  // A failure of scans as a whole names neither a vault nor a subscription. Its text says what failed.
  if (open.every(({ item }) => UNREAD_KINDS.has(item.kind)))
    return failuresOf(open).every(hasLocation) ? "unread" : undefined;
  return open.every(({ item }) => isLate(item)) ? "notRenewed" : undefined;
}

const isLate = (item: Item): boolean => item.kind === "asset" && item.late !== undefined;

/** Returns a line as one sentence with its type and owner: `kv-a/one expires in 6 days (secret, owner: ann)`. */
export function lineHeadline({ title, what, facts }: Pick<MessageLine, "title" | "what" | "facts">): Headline {
  const factOf = (wanted: string) => facts.find(([label]) => label === wanted)?.[1];
  const [type, owner] = [factOf("Type"), factOf("Owner")];
  const details = [
    ...(type === undefined ? [] : [lowerFirst(type)]),
    ...(owner === undefined ? [] : [owner === NO_OWNER ? lowerFirst(owner) : `owner: ${truncate(owner, MAX_OWNER)}`]),
  ];
  return {
    start: "",
    name: title,
    end: ` ${what}${details.length === 0 ? "" : ` (${details.join(", ")})`}`,
    shorter: [],
  };
}

const lowerFirst = (text: string): string => text.slice(0, 1).toLowerCase() + text.slice(1);

/**
 * Returns the sentences below the subject: the numbers of open and of resolved alerts, the rule, and what to do next.
 *
 * @param ruleName - Undefined if the message has alerts of several rules, which its lines name.
 */
export function introOf(
  types: ReadonlySet<AlertType>,
  items: readonly Item[],
  { isDigest, ruleName }: { isDigest: boolean; ruleName: string | undefined },
): string {
  const resolved = items.filter(isResolution).length;
  const persisting = items.filter(({ kind }) => kind === "stillFailing" || kind === "escalated").length;
  const open = items.length - resolved;
  const ofRule = ruleName === undefined ? "" : ` of the rule “${ruleName}”`;
  const changes = [
    ...(open > persisting ? [`${open - persisting} new`] : []),
    ...(persisting > 0 ? [`${persisting} still open`] : []),
    ...(resolved > 0 ? [`${resolved} resolved`] : []),
  ].join(", ");
  const counts = isDigest
    ? `${counted(items.length, "alert")}${ofRule} since the last digest: ${changes}`
    : `${[
        ...(open > 0 ? [counted(open, "alert")] : []),
        ...(resolved > 0 ? [counted(resolved, "resolved alert")] : []),
      ].join(" and ")}${ofRule}`;
  const [type] = types.size === 1 ? [...types] : [];
  const next = open === 0 ? NO_ACTION : type && nextStepOf(type, open);
  const nextOfEscalated = items.some(({ kind }) => kind === "escalated") ? [ACKNOWLEDGE] : [];
  const nextOfResolved = open > 0 && resolved > 0 ? ["Resolved alerts need no action."] : [];
  return [`${counts}.`, ...(next ? [next] : []), ...nextOfEscalated, ...nextOfResolved].join(" ");
}

export const NO_ACTION = "No action is needed.";

/**
 * Returns the number of open items with their common problem, such as `2 assets expire within 7 days`. Items without a common
 * problem are counted as alerts. One open item is counted only if there are also resolved ones: see `headlineOf`.
 */
function countsOf(
  types: ReadonlySet<AlertType>,
  open: readonly HeadlineEntry[],
  problem: CommonProblem | undefined,
): string {
  const items = open.map(({ item }) => item);
  // Undefined in a mail that combines alerts of several types: no type then names all of its items.
  const [type] = types.size === 1 ? [...types] : [];
  const number = items.length;
  if (problem === "unread") return unreadCounts(open);
  if (items.every(({ kind }) => UNREAD_KINDS.has(kind))) return counted(failuresOf(open).length, "scan failure");
  if (problem === "notRenewed")
    return `${number} ${number === 1 ? "certificate was" : "certificates were"} not renewed in time`;
  const kinds = new Set(items.map(({ kind }) => kind));
  const [kind] = kinds.size === 1 ? [...kinds] : [];
  switch (kind) {
    case "asset":
      // Late renewals and other expiries have no common problem.
      if (items.some(isLate)) return counted(number, "alert");
      return expiryCounts(open, type === "credentialExpiry" ? CREDENTIAL : ASSET);
    case "violation":
      return `${counted(number, "compliance violation")}: ${severityCounts(items)}`;
    case "scan":
      return `${counted(number, "discovery scan")} did not complete`;
    case "credential":
      return expiryCounts(open, SERVICE_CREDENTIAL);
    case "automation":
      return type && AUTOMATION_HEADLINES[type] && number > 1
        ? `${number} ${AUTOMATION_HEADLINES[type]}`
        : counted(number, "alert");
    case "breakGlass":
      return `${counted(number, "password sign-in")} while passwords are turned off`;
    case "escalated":
      return `${counted(number, "alert")} without acknowledgment`;
    default: {
      // A digest can have new alerts about expiring assets, and escalations of earlier ones.
      const subjects = items.map((item) => ("of" in item ? item.of : item));
      const areExpiries = subjects.every((subject) => subject.kind === "asset" && !subject.late);
      return areExpiries
        ? expiryCounts(open, type === "credentialExpiry" ? CREDENTIAL : ASSET)
        : counted(number, "alert");
    }
  }
}

type Noun = readonly [singular: string, plural: string];
const ASSET: Noun = ["asset", "assets"];
const CREDENTIAL: Noun = ["credential", "credentials"];
const SERVICE_CREDENTIAL: Noun = ["credential of the service", "credentials of the service"];

/** Returns how many items expired and how many expire how soon: `1 asset expired, 2 expire within 7 days, 1 within 30 days`. */
function expiryCounts(entries: readonly HeadlineEntry[], [singular, plural]: Noun): string {
  const countOf = (wanted: MessageLine["urgency"]) => entries.filter(({ line }) => line.urgency === wanted).length;
  const withNoun = (number: number) => `${number} ${number === 1 ? singular : plural}`;
  const expired = countOf("expired");
  const upcoming = [
    [countOf("critical"), "within 7 days"],
    [countOf("warning"), "within 30 days"],
    [countOf("notice"), "in more than 30 days"],
  ] as const;
  return [
    ...(expired > 0 ? [`${withNoun(expired)} expired`] : []),
    ...upcoming
      .filter(([number]) => number > 0)
      .map(([number, when], index) => {
        if (index > 0) return `${number} ${when}`;
        return `${expired > 0 ? number : withNoun(number)} ${number === 1 ? "expires" : "expire"} ${when}`;
      }),
  ].join(", ");
}

/** Returns how many violations have which severity, the most severe first. */
const severityCounts = (items: readonly Item[]): string =>
  SEVERITIES.flatMap((severity) => {
    const number = items.filter((item) => item.kind === "violation" && item.severity === severity).length;
    return number > 0 ? [`${number} ${severity}`] : [];
  }).join(", ");

/**
 * Returns the failures of scans that the entries are about. A digest can name one of them twice: when the failure was found, and
 * in a reminder.
 */
function failuresOf(entries: readonly HeadlineEntry[]): ScanFailureItem[] {
  const subjects = entries.map(({ item }) => ("of" in item ? item.of : item));
  const failures = subjects.filter((item) => item.kind === "scanFailure");
  return [...new Map(failures.map((failure) => [failure.id, failure])).values()];
}

const hasLocation = ({ vaultName, subscriptionId }: ScanFailureItem): boolean =>
  vaultName !== undefined || Boolean(subscriptionId);

/** Returns how many subscriptions and vaults can't be read. */
function unreadCounts(entries: readonly HeadlineEntry[]): string {
  const failures = failuresOf(entries);
  const vaults = failures.filter(({ vaultName }) => vaultName !== undefined).length;
  const subscriptions = failures.length - vaults;
  const parts = [
    ...(subscriptions > 0 ? [counted(subscriptions, "subscription")] : []),
    ...(vaults > 0 ? [counted(vaults, "vault")] : []),
  ];
  const still = entries.every(({ item }) => item.kind === "stillFailing") ? "still " : "";
  return `${parts.join(" and ")} ${still}can't be read`;
}

/**
 * Returns the first owner, and the number of other owners and of items without one. Empty if no item can have an owner.
 *
 * @param form - `numbers`: without the name of the first owner.
 */
function ownersText(entries: readonly HeadlineEntry[], form: "name" | "numbers" = "name"): string {
  const locations = entries.flatMap(({ line }) => line.location ?? []);
  const owners = [...new Set(locations.map(({ owner }) => owner))].filter((owner) => owner !== "");
  const unowned = locations.filter(({ owner }) => owner === "").length;
  const [first, ...others] = owners;
  if (first === undefined) return unowned > 0 ? " (no owner)" : "";
  const named = `${others.length > 0 ? "owners" : "owner"}: ${truncate(first, MAX_OWNER)}${others.length > 0 ? ` and ${others.length} more` : ""}`;
  const owned = form === "name" ? named : counted(owners.length, "owner");
  return ` (${owned}${unowned > 0 ? `, ${unowned} without owner` : ""})`;
}
