import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/**
 * Slack's limits: 150 characters of a header, 3,000 of a section, 50 blocks. Each line of the message is a block.
 * https://docs.slack.dev/reference/block-kit/blocks
 */
const MAX_HEADER = 150;
const MAX_SECTION = 3000;
const MAX_LINES = 20;
/** Lengths with which the details and the link of a line fit into a section. */
const MAX_TITLE = 600;
const MAX_DETAILS = 1200;

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
      { type: "context", elements: [mrkdwn(escapeMrkdwn(why.join(" ")))] },
    ],
  };
}

function lineText({ urgency, title, what, facts, link }: MessageLine): string {
  const details = facts.map(([label, value]) => `${escapeMrkdwn(label)}: ${escapeMrkdwn(value)}`).join(" · ");
  const lines = [
    `${SYMBOLS[urgency]} *${truncate(escapeMrkdwn(title), MAX_TITLE)}* ${truncate(escapeMrkdwn(what), MAX_TITLE)}`,
    truncate(details, MAX_DETAILS),
  ].join("\n");
  const linkLine = link ? `\n<${link.url}|${escapeMrkdwn(link.text)}>` : "";
  return lines.length + linkLine.length > MAX_SECTION ? lines : lines + linkLine;
}

/** Slack's markup. `verbatim` prevents links and mentions from addresses and names without markup. */
const mrkdwn = (text: string) => ({ type: "mrkdwn", text: truncate(text, MAX_SECTION), verbatim: true });
const section = (text: string) => ({ type: "section", text: mrkdwn(text) });

/** Slack can't escape these characters, so characters that look alike replace them. */
const LOOK_ALIKES: Record<string, string> = { "*": "\u2217", _: "\u02CD", "~": "\u223C", "`": "\u02CB" };

/**
 * Escapes a text, so that it has no formatting, links or mentions. An underscore between letters or digits stays, as in
 * `DB_PASSWORD`, because it starts no formatting there.
 * https://docs.slack.dev/messaging/formatting-message-text#escaping
 */
const escapeMrkdwn = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replace(/[*~`]|(?<![\p{L}\p{N}_])_+|_+(?![\p{L}\p{N}_])/gu, (characters) =>
      LOOK_ALIKES[characters[0]!]!.repeat(characters.length),
    );

const truncate = (text: string, maxLength: number): string =>
  (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text).toWellFormed();
