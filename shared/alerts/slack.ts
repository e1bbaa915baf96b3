import { subjectWithin } from "./headline.ts";
import type { Urgency } from "./items.ts";
import {
  assignOwnerLinks,
  factLines,
  factsUnderHeadings,
  groupLines,
  locationText,
  type OwnerGroup,
  ownerText,
} from "./line-groups.ts";
import type { Message } from "./message.ts";
import { type MessageLine, type MessageLink, truncate } from "./message-line.ts";

/**
 * Slack's limits: 150 characters of a header, 3,000 of a section, 50 blocks. Each line of the message is a block, and so is each
 * heading of an owner and a location. With a heading for each line, a message has 45 blocks.
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
export function slackOf({ subject, headline, intro, lines, why, histories, mainLink }: Message): object {
  const omittedLines = lines.length - MAX_LINES;
  const moreSection = omittedLines > 0 ? [section(`${omittedLines} more are not shown.`)] : [];
  const historyLinks = histories.slice(0, 1).map((url) => `<${url}|Show this notification>`);
  return {
    text: truncate(escapeMrkdwn(subject), MAX_SECTION),
    blocks: [
      { type: "header", text: { type: "plain_text", text: subjectWithin(headline, MAX_HEADER), emoji: false } },
      section(escapeMrkdwn(intro)),
      // A link and no button: Slack shows an error at a button of an app that does not receive the click.
      ...(mainLink ? [section(`*${linkText(mainLink)}*`)] : []),
      ...groupLines(lines.slice(0, MAX_LINES)).flatMap(groupSections),
      ...moreSection,
      { type: "context", elements: [mrkdwn([escapeMrkdwn(why.join(" ")), ...historyLinks].join(" "))] },
    ],
  };
}

/** Returns the sections of an owner: a heading for each location, and its lines. Items without an owner have no heading. */
const groupSections = ({ owner, locations }: OwnerGroup): object[] =>
  locations.flatMap(({ location, lines }) => [
    ...(owner === undefined
      ? []
      : [
          section(
            [
              `*${truncate(escapeMrkdwn(`${ownerText(owner)} · ${locationText(location)}`), MAX_TITLE)}*`,
              ...assignOwnerLinks(location).map(linkText),
            ].join(" · "),
          ),
        ]),
    ...lines.map((line) => section(lineText(line))),
  ]);

function lineText(line: MessageLine): string {
  const { urgency, label, title, what, command, links } = line;
  const details = factLines(factsUnderHeadings(line)).map(escapeMrkdwn).join("\n");
  const lines = [
    `${SYMBOLS[urgency]} ${label}: *${truncate(escapeMrkdwn(title), MAX_TITLE)}* ${truncate(escapeMrkdwn(what), MAX_TITLE)}`,
    truncate(details, MAX_DETAILS),
    ...(command === undefined ? [] : [`Command: ${escapeMrkdwn(command)}`]),
  ].join("\n");
  // A link that does not fit is left out, because a truncated one would lead elsewhere.
  const linkLines = [links, links.slice(0, 1)].map((some) =>
    some.length === 0 ? "" : `\n${some.map(linkText).join(" · ")}`,
  );
  return lines + (linkLines.find((text) => lines.length + text.length <= MAX_SECTION) ?? "");
}

const linkText = ({ text, url }: MessageLink): string => `<${url}|${escapeMrkdwn(text)}>`;

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
