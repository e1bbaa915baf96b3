import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/**
 * Slack's limits: 150 characters of a header, 3,000 of a section, 50 blocks. Each line of the message is a block.
 * https://docs.slack.dev/reference/block-kit/blocks
 */
const MAX_HEADER = 150;
const MAX_SECTION = 3000;
const MAX_LINES = 20;

const SYMBOLS: Record<Urgency, string> = {
  expired: ":red_circle:",
  critical: ":large_orange_circle:",
  warning: ":large_yellow_circle:",
  notice: ":large_blue_circle:",
};

/** Returns the message as Slack Block Kit, for an incoming webhook. */
export function slackOf({ subject, intro, lines, why, histories, pageUrl }: Message): object {
  const omittedLines = lines.length - MAX_LINES;
  const [historyUrl] = histories;
  const moreSection =
    omittedLines > 0 ? [section(`${omittedLines} more${historyUrl ? `: <${historyUrl}|show all>` : ""}.`)] : [];
  const links = [
    ...(historyUrl ? [`<${historyUrl}|Show in the alert history>`] : []),
    ...(pageUrl ? [`<${pageUrl}|Open the service>`] : []),
  ].join(" · ");
  return {
    text: truncate(escapeMrkdwn(subject), MAX_SECTION),
    blocks: [
      { type: "header", text: { type: "plain_text", text: truncate(subject, MAX_HEADER), emoji: false } },
      section(escapeMrkdwn(intro)),
      ...lines.slice(0, MAX_LINES).map((line) => section(lineText(line))),
      ...moreSection,
      ...(links ? [section(links)] : []),
      { type: "context", elements: [{ type: "mrkdwn", text: truncate(escapeMrkdwn(why.join(" ")), MAX_SECTION) }] },
    ],
  };
}

function lineText({ urgency, title, what, facts, link }: MessageLine): string {
  const details = facts.map(([label, value]) => `${escapeMrkdwn(label)}: ${escapeMrkdwn(value)}`).join(" · ");
  return [
    `${SYMBOLS[urgency]} *${escapeMrkdwn(title)}* ${escapeMrkdwn(what)}`,
    details,
    ...(link ? [`<${link.url}|${escapeMrkdwn(link.text)}>`] : []),
  ].join("\n");
}

const section = (text: string) => ({ type: "section", text: { type: "mrkdwn", text: truncate(text, MAX_SECTION) } });

/** https://docs.slack.dev/messaging/formatting-message-text#escaping */
const escapeMrkdwn = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("*", "\u2217");

const truncate = (text: string, maxLength: number): string =>
  (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text).toWellFormed();
