import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/**
 * Maximum numbers of lines, and of characters of a text. With these, a card stays below Teams' limit of 28 KB:
 * https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat
 */
const MAX_LINES = 15;
const MAX_TEXT = 300;

const COLORS: Record<Urgency, string> = {
  expired: "attention",
  critical: "attention",
  warning: "warning",
  notice: "accent",
};

/** Returns the message as an Adaptive Card, for a Teams webhook of the Workflows app.
 * https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
 */
export function teamsOf({ subject, intro, lines, why, histories, pageUrl }: Message): object {
  const omittedLines = lines.length - MAX_LINES;
  const actions = [
    ...(histories[0] ? [openUrlAction("Show in the alert history", histories[0])] : []),
    ...(pageUrl ? [openUrlAction("Open the service", pageUrl)] : []),
  ];
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
            text(subject, { size: "large", weight: "bolder" }),
            text(intro),
            ...lines.slice(0, MAX_LINES).map(lineContainer),
            ...(omittedLines > 0 ? [text(`${omittedLines} more. The alert history shows all of them.`)] : []),
            text(why[0] ?? "", { size: "small", isSubtle: true, separator: true }),
          ],
          ...(actions.length > 0 && { actions }),
        },
      },
    ],
  };
}

function lineContainer({ urgency, title, what, facts, link }: MessageLine): object {
  return {
    type: "Container",
    separator: true,
    items: [
      text(`${title} ${what}`, { weight: "bolder", color: COLORS[urgency] }),
      text(facts.map(([label, value]) => `${label}: ${value}`).join(" · "), { size: "small" }),
      // A Markdown link, because users don't see that a whole container can be selected.
      ...(link
        ? [
            {
              type: "TextBlock",
              text: `[${escapeMarkdown(link.text)}](${encodeForMarkdown(link.url)})`,
              wrap: true,
              size: "small",
            },
          ]
        : []),
    ],
  };
}

const openUrlAction = (title: string, url: string) => ({ type: "Action.OpenUrl", title, url });

/** Encodes characters that would end a Markdown link. */
const encodeForMarkdown = (url: string): string =>
  url.replace(/[()\s]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

const text = (value: string, style: Record<string, unknown> = {}) => ({
  type: "TextBlock",
  text: escapeMarkdown(value),
  wrap: true,
  ...style,
});

/** Escapes Markdown and mentions (`<at>`), which text blocks render in part. Also escapes the start of a list. */
const escapeMarkdown = (value: string): string =>
  (value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT - 1)}…` : value)
    .replace(/[\\*_[\]()`#~<>]/g, "\\$&")
    .replace(/^(\s*)([-+])/, "$1\\$2")
    .replace(/^(\s*\d+)\./, "$1\\.")
    .toWellFormed();
