import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/** A message may have 28 KB: https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat */
const MAX_LINES = 15;
const MAX_TEXT = 300;

const COLOURS: Record<Urgency, string> = {
  expired: "attention",
  critical: "attention",
  warning: "warning",
  notice: "accent",
};

/**
 * A message for a Teams webhook made with Workflows: an Adaptive Card as the only attachment.
 * https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
 */
export function teamsOf({ subject, intro, lines, why, histories, pageUrl }: Message): object {
  const rest = lines.length - MAX_LINES;
  const actions = [
    ...(histories[0] ? [open("Show in the history", histories[0])] : []),
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
            ...(rest > 0 ? [text(`… and ${rest} more. The history has all of them.`)] : []),
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
      text(`${title} ${what}`, { weight: "bolder", color: COLOURS[urgency] }),
      text(facts.map(([label, value]) => `${label}: ${value}`).join(" · "), { size: "small" }),
      // Markdown's own link: an action of a whole container can't be seen.
      ...(link
        ? [{ type: "TextBlock", text: `[${plain(link.text)}](${encoded(link.url)})`, wrap: true, size: "small" }]
        : []),
    ],
  };
}

const open = (title: string, url: string) => ({ type: "Action.OpenUrl", title, url });

/** Nothing in an address can end the Markdown around it. */
const encoded = (url: string): string =>
  url.replace(/[()\s]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

const text = (value: string, style: Record<string, unknown> = {}) => ({
  type: "TextBlock",
  text: plain(value),
  wrap: true,
  ...style,
});

/** A text block takes a part of Markdown, which a name must not become. */
const plain = (value: string): string =>
  (value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT - 1)}…` : value)
    .replace(/[\\*_[\]()`#~>]/g, "\\$&")
    .toWellFormed();
