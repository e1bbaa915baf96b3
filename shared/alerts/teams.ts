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
import type { MessageLine, MessageLink } from "./message-line.ts";

/** Maximum numbers of lines, and of characters of a text and of a line's details, which include the next step of a rotation. */
const MAX_LINES = 15;
const MAX_TEXT = 300;
const MAX_DETAILS = 1200;
/**
 * Maximum size of a card in bytes. Teams' limit is 28 KB:
 * https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat
 */
const MAX_CARD_BYTES = 27_000;

const COLORS: Record<Urgency, string> = {
  expired: "attention",
  critical: "attention",
  warning: "warning",
  notice: "accent",
};

/** Returns the message as an Adaptive Card, for a Teams webhook of the Workflows app.
 * https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
 */
export function teamsOf(message: Message): object {
  // Long names in an alphabet of several bytes can make a card with the most lines too large.
  for (let lineCount = MAX_LINES; ; lineCount--) {
    const card = cardOf(message, lineCount);
    if (lineCount === 1 || Buffer.byteLength(JSON.stringify(card)) <= MAX_CARD_BYTES) return card;
  }
}

function cardOf({ headline, intro, lines, why, histories, mainLink }: Message, lineCount: number): object {
  const omittedLines = lines.length - lineCount;
  return {
    type: "message",
    attachments: [
      {
        contentType: "application/vnd.microsoft.card.adaptive",
        contentUrl: null,
        content: {
          $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
          type: "AdaptiveCard",
          version: "1.4",
          msteams: { width: "Full" },
          body: [
            text(subjectWithin(headline, MAX_TEXT), { size: "large", weight: "bolder" }),
            text(intro),
            // The main link is in the body, because Teams shows the card's own actions below all texts.
            ...(mainLink
              ? [
                  {
                    type: "ActionSet",
                    actions: [{ type: "Action.OpenUrl", title: mainLink.text, url: mainLink.url, style: "positive" }],
                  },
                ]
              : []),
            ...groupLines(lines.slice(0, lineCount)).flatMap(groupBlocks),
            ...(omittedLines > 0 ? [text(`${omittedLines} more are not shown.`)] : []),
            // The service and the rule. Further sentences, such as how to stop the messages, are only in mails and Slack.
            text(why.slice(0, 2).join(" "), { size: "small", isSubtle: true, separator: true }),
            ...histories.slice(0, 1).map((url) => linkBlock({ text: "Show this notification", url })),
          ],
        },
      },
    ],
  };
}

/** Returns the blocks of an owner: a heading for each location, and its lines. Items without an owner have no heading. */
const groupBlocks = ({ owner, locations }: OwnerGroup): object[] =>
  locations.flatMap(({ location, lines }) => [
    ...(owner === undefined
      ? []
      : [
          text(`${ownerText(owner)} · ${locationText(location)}`, {
            weight: "bolder",
            separator: true,
            spacing: "large",
          }),
          ...assignOwnerLinks(location).map(linkBlock),
        ]),
    ...lines.map(lineContainer),
  ]);

function lineContainer(line: MessageLine): object {
  const { urgency, label, title, what, command, links } = line;
  return {
    type: "Container",
    separator: true,
    items: [
      text(`${label}: ${title} ${what}`, { weight: "bolder", color: COLORS[urgency] }),
      ...factLines(factsUnderHeadings(line)).map((details, index) =>
        text(details, { size: "small", ...(index > 0 && { spacing: "none" }) }, MAX_DETAILS),
      ),
      ...(command === undefined ? [] : [text(command, { size: "small", fontType: "monospace" }, MAX_DETAILS)]),
      // A Markdown link, because users don't see that a whole container can be selected. Each link is a block of its own.
      ...links.map(linkBlock),
    ],
  };
}

const linkBlock = ({ text, url }: MessageLink) => ({
  type: "TextBlock",
  text: `[${escapeMarkdown(text)}](${encodeForMarkdown(url)})`,
  wrap: true,
  size: "small",
  spacing: "none",
});

/** Encodes characters that would end a Markdown link. */
const encodeForMarkdown = (url: string): string =>
  url.replace(/[()\s]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

const text = (value: string, style: Record<string, unknown> = {}, maxLength = MAX_TEXT) => ({
  type: "TextBlock",
  text: escapeMarkdown(value, maxLength),
  wrap: true,
  ...style,
});

/** Escapes Markdown and mentions (`<at>`), which text blocks render in part. Also escapes the start of a list. */
const escapeMarkdown = (value: string, maxLength = MAX_TEXT): string =>
  (value.length > maxLength ? `${value.slice(0, maxLength - 1)}…` : value)
    .replace(/[\\*_[\]()`#~<>]/g, "\\$&")
    .replace(/^(\s*)([-+])/, "$1\\$2")
    .replace(/^(\s*\d+)\./, "$1\\.")
    .toWellFormed();
