import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/** Teams limits a message to 28 KB: https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat */
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
  const rest = lines.length - MAX_LINES;
  const actions = [
    ...(histories[0] ? [open("Show in the alert history", histories[0])] : []),
    ...(pageUrl ? [open("Open the service", pageUrl)] : []),
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
            ...lines.slice(0, MAX_LINES).map(container),
            ...(rest > 0 ? [text(`${rest} more. The alert history shows all of them.`)] : []),
            text(why[0] ?? "", { size: "small", isSubtle: true, separator: true }),
          ],
          ...(actions.length > 0 && { actions }),
        },
      },
    ],
  };
}

function container({ urgency, title, what, facts, link }: MessageLine): object {
  return {
    type: "Container",
    separator: true,
    items: [
      text(`${title} ${what}`, { weight: "bolder", color: COLORS[urgency] }),
      text(facts.map(([label, value]) => `${label}: ${value}`).join(" · "), { size: "small" }),
      // A Markdown link, because an action of a whole container is not visible.
      ...(link
        ? [{ type: "TextBlock", text: `[${plain(link.text)}](${encoded(link.url)})`, wrap: true, size: "small" }]
        : []),
    ],
  };
}

const open = (title: string, url: string) => ({ type: "Action.OpenUrl", title, url });

/** Encodes characters that would end a Markdown link. */
const encoded = (url: string): string =>
  url.replace(/[()\s]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

const text = (value: string, style: Record<string, unknown> = {}) => ({
  type: "TextBlock",
  text: plain(value),
  wrap: true,
  ...style,
});

/** Escapes Markdown, which text blocks render in part. */
const plain = (value: string): string =>
  (value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT - 1)}…` : value)
    .replace(/[\\*_[\]()`#~>]/g, "\\$&")
    .toWellFormed();
