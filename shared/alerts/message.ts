import { DAY } from "../inventory/health.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type { AssetNews, News, ScanNews, ViolationNews } from "./news.ts";

export const URGENCIES = ["expired", "critical", "warning", "notice"] as const;
export type Urgency = (typeof URGENCIES)[number];

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

/** The message of a delivery; the same at every attempt, since it is told from the instant the delivery was made. */
export function messageOf(delivery: Omit<DeliveryRecord, "news">, news: readonly News[], links: Links): Message {
  const at = new Date(delivery.createdAt);
  const lines = news.map((one) => lineOf(one, at, links));
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  const digest = delivery.deliveryMode === "digest" ? "Digest: " : "";
  const prefix = delivery.test ? "[Test] " : "";
  return {
    subject: `${prefix}${digest}${headline(news, lines)}`,
    intro: introOf(delivery, news),
    lines,
    why: [
      `You get this because of the alert rule “${delivery.ruleName}” (${delivery.ruleId}).`,
      "To stop it, ask an administrator of the service to take you off the rule's recipients, to snooze an asset for this rule (POST /alerts/snoozes), or to disable the rule.",
    ],
    ruleName: delivery.ruleName,
    ...(base ? { historyUrl: `${base}/alerts/history/${delivery.deliveryId}` } : {}),
  };
}

function headline(news: readonly News[], lines: readonly MessageLine[]): string {
  const first = news[0];
  const line = lines[0];
  if (!first || !line) return "Nothing to tell";
  if (news.length === 1) return `${line.title} ${line.what}`;
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
      return `${news.length} new compliance violations, the most severe ${first.severity}`;
    case "scan":
      return `${news.length} discovery scans did not complete`;
  }
}

function introOf({ deliveryMode, test }: Omit<DeliveryRecord, "news">, news: readonly News[]): string {
  if (test) return "This is a test of the alert rule. What follows is an example and needs no action.";
  const many = news.length === 1 ? "One thing is new" : `${news.length} things are new`;
  const since = deliveryMode === "digest" ? " since the last digest" : "";
  const order = news.length > 1 ? ", the most urgent first" : "";
  return `${many}${since}${order}.`;
}

function lineOf(news: News, at: Date, links: Links): MessageLine {
  switch (news.kind) {
    case "asset":
      return assetLine(news, at, links);
    case "violation":
      return violationLine(news, links);
    case "scan":
      return scanLine(news, links);
  }
}

const PORTAL_LIST = { secret: "secrets", key: "keys", certificate: "certificates" } as const;
const TYPE_NAMES = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;

function assetLine(news: AssetNews, at: Date, links: Links): MessageLine {
  const left = news.expiresOn * 1000 - at.getTime();
  const urgency =
    left < 0 ? "expired" : left <= CRITICAL_DAYS * DAY ? "critical" : left <= WARNING_DAYS * DAY ? "warning" : "notice";
  const on = dateText(new Date(news.expiresOn * 1000));
  return {
    urgency,
    title: `${news.vaultName}/${news.name}`,
    what: left < 0 ? `expired ${ago(-left)}` : `expires ${within(left)}`,
    facts: [
      ["Type", TYPE_NAMES[news.type]],
      [left < 0 ? "Expired" : "Expires", on],
      ["Owner", news.owner ?? "none given"],
      ...(news.threshold > 0 ? ([["Threshold", dayCount(news.threshold)]] as [string, string][]) : []),
    ],
    link: { text: "Open in the Azure portal", url: vaultLink(links, news.vaultId, PORTAL_LIST[news.type]) },
  };
}

const SEVERITY_URGENCY = { critical: "expired", high: "critical", medium: "warning", low: "notice" } as const;

function violationLine(news: ViolationNews, links: Links): MessageLine {
  return {
    urgency: SEVERITY_URGENCY[news.severity],
    title: news.resourceId,
    what: `breaks the check ${news.checkId}`,
    facts: [
      ["Check", news.title],
      ["Severity", news.severity],
      ["Owner", news.owner ?? "none given"],
      ["Vault", news.vaultName],
      ["First seen", dateText(new Date(news.firstSeenAt))],
    ],
    ...(news.vaultId ? { link: { text: "Open in the Azure portal", url: vaultLink(links, news.vaultId, "") } } : {}),
  };
}

const SCAN_ENDS: Record<string, string> = {
  partial: "could not read every vault",
  failed: "failed",
  timedOut: "ran out of time",
};

function scanLine(news: ScanNews, links: Links): MessageLine {
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  return {
    urgency: news.status === "partial" ? "warning" : "critical",
    title: `Scan ${news.id}`,
    what: SCAN_ENDS[news.status] ?? `ended as ${news.status}`,
    facts: [
      ["Mode", news.mode],
      ["Ended", dateText(new Date(news.finishedAt))],
      ["Vaults not read", `${news.vaultsFailed} of ${news.vaultsTotal}`],
      ...(news.message ? ([["Reason", news.message]] as [string, string][]) : []),
    ],
    ...(base ? { link: { text: "See the results", url: `${base}/api/assets/discovery/scan/${news.id}/results` } } : {}),
  };
}

/** https://learn.microsoft.com/azure/azure-portal/azure-portal-overview: a resource's page, and a list under it. */
export function vaultLink({ portal, tenantId }: Links, vaultId: string, list: string): string {
  const path = vaultId.split("/").map(encodeURIComponent).join("/");
  return `${portal}/#${tenantId ? `@${tenantId}` : ""}/resource${path}${list ? `/${list}` : ""}`;
}

/** In UTC and in a form that reads the same in every country. */
const dateText = (date: Date): string =>
  `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ${date.toISOString().slice(11, 16)} UTC`;
const MONTHS = [
  ...["January", "February", "March", "April", "May", "June"],
  ...["July", "August", "September", "October", "November", "December"],
];

const dayCount = (days: number): string => (days === 1 ? "1 day" : `${days} days`);

function within(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY);
  if (days >= 1) return `in ${dayCount(days)}`;
  const hours = Math.floor(milliseconds / 3_600_000);
  return hours >= 1 ? `in ${hours} ${hours === 1 ? "hour" : "hours"}` : "within the hour";
}

function ago(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY);
  if (days >= 1) return `${dayCount(days)} ago`;
  const hours = Math.floor(milliseconds / 3_600_000);
  return hours >= 1 ? `${hours} ${hours === 1 ? "hour" : "hours"} ago` : "within the last hour";
}
