import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/** https://docs.slack.dev/reference/block-kit/blocks: 150 characters of a header, 3,000 of a section, 50 blocks. */
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
  const rest = lines.length - MAX_LINES;
  const [historyUrl] = histories;
  const more = rest > 0 ? [section(`${rest} more${historyUrl ? `: <${historyUrl}|show all>` : ""}.`)] : [];
  const links = [
    ...(historyUrl ? [`<${historyUrl}|Show in the alert history>`] : []),
    ...(pageUrl ? [`<${pageUrl}|Open the service>`] : []),
  ].join(" · ");
  return {
    text: cut(escaped(subject), MAX_SECTION),
    blocks: [
      { type: "header", text: { type: "plain_text", text: cut(subject, MAX_HEADER), emoji: false } },
      section(escaped(intro)),
      ...lines.slice(0, MAX_LINES).map((line) => section(lineText(line))),
      ...more,
      ...(links ? [section(links)] : []),
      { type: "context", elements: [{ type: "mrkdwn", text: cut(escaped(why.join(" ")), MAX_SECTION) }] },
    ],
  };
}

function lineText({ urgency, title, what, facts, link }: MessageLine): string {
  const details = facts.map(([label, value]) => `${escaped(label)}: ${escaped(value)}`).join(" · ");
  return [
    `${SYMBOLS[urgency]} *${escaped(title)}* ${escaped(what)}`,
    details,
    ...(link ? [`<${link.url}|${escaped(link.text)}>`] : []),
  ].join("\n");
}

const section = (text: string) => ({ type: "section", text: { type: "mrkdwn", text: cut(text, MAX_SECTION) } });

/** https://docs.slack.dev/messaging/formatting-message-text#escaping */
const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("*", "\u2217");

const cut = (text: string, most: number): string =>
  (text.length > most ? `${text.slice(0, most - 1)}…` : text).toWellFormed();
