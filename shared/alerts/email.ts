import { subjectWithin } from "./headline.ts";
import type { Urgency } from "./items.ts";
import {
  assignOwnerLinks,
  factLines,
  factsUnderHeadings,
  groupLines,
  locationKey,
  locationText,
  type OwnerGroup,
  ownerText,
} from "./line-groups.ts";
import type { Message } from "./message.ts";
import { type ItemLocation, type MessageLine, type MessageLink, truncate } from "./message-line.ts";

/** Formats alert messages as mails, in HTML and plain text. */

/** Maximum subject length: some clients truncate longer subjects, and RFC 5322 limits a line to 998 characters. */
const MAX_SUBJECT = 180;
/** Maximum size of a mail in bytes: HTML, plain text and subject together. Gmail clips a message at 102 KB of HTML.
 */
export const MAX_MAIL_BYTES = 90_000;
/** Bytes between two lines or headings: a line break in HTML and two in plain text. */
const SEPARATOR_BYTES = 3;
/** Maximum length of one fact, so that a single line can't fill a mail. */
const MAX_FACT = 800;
/** Maximum number of sentences about rules and of history links. A delayed mail can combine many deliveries. */
const MAX_SENTENCES = 12;

/** Colors with a contrast of at least 4.5:1 against white: https://www.w3.org/TR/WCAG22/#contrast-minimum */
const COLORS: Record<Urgency, string> = {
  expired: "#8b1a1a",
  critical: "#b3360b",
  warning: "#7a5b00",
  notice: "#1f5fa8",
};

/** The content of a mail. */
export interface MailContent {
  subject: string;
  html: string;
  text: string;
}

/**
 * Returns a mail as HTML without style sheets, images or scripts, and as plain text. Lines are grouped by owner and location.
 * Within a group the most urgent line is first. Lines beyond the size limit are counted and linked.
 */
export function mailOf(message: Message): MailContent {
  const fittingLines = linesThatFit(message);
  const omittedLines = message.lines.length - fittingLines.length;
  const owners = groupLines(fittingLines);
  return {
    subject: subjectOf(message),
    html: htmlOf(message, htmlOwners(owners), omittedLines),
    text: textOf(message, textOwners(owners), omittedLines),
  };
}

const subjectOf = ({ headline }: Message): string => subjectWithin(headline, MAX_SUBJECT);

const byteLength = (...texts: readonly string[]): number =>
  texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);

/** Returns the most urgent lines that fit into a mail, including their headings. */
function linesThatFit(message: Message): MessageLine[] {
  const { lines } = message;
  const bytesWithoutLines = byteLength(
    htmlOf(message, "", lines.length),
    textOf(message, "", lines.length),
    subjectOf(message),
  );
  const [owners, locations] = [new Set<string | undefined>(), new Set<string>()];
  let remainingBytes = MAX_MAIL_BYTES - bytesWithoutLines;
  for (const [index, line] of lines.entries()) {
    const { location } = line;
    // A location has a heading under each owner.
    const key = location && JSON.stringify([location.owner, locationKey(location)]);
    remainingBytes -= byteLength(htmlLine(line), textLine(line)) + SEPARATOR_BYTES;
    if (!owners.has(location?.owner))
      remainingBytes -= byteLength(htmlOwner(location?.owner), textOwner(location?.owner)) + SEPARATOR_BYTES;
    if (location && key !== undefined && !locations.has(key))
      remainingBytes -= byteLength(htmlLocation(location), textLocation(location)) + SEPARATOR_BYTES;
    if (remainingBytes < 0) return lines.slice(0, index);
    owners.add(location?.owner);
    if (key !== undefined) locations.add(key);
  }
  return [...lines];
}

function htmlOf(message: Message, sections: string, omittedLines: number): string {
  const { intro, histories, mainLink } = message;
  const font = "font-family:'Segoe UI',Helvetica,Arial,sans-serif";
  const subject = escapeHtml(message.subject);
  const more = omittedLines === 0 ? "" : `<p style="margin:16px 0 0"><b>${escapeHtml(moreText(omittedLines))}</b></p>`;
  const historySentences = histories.length > 0 ? [`${HISTORY_TEXT}: ${anchors(histories)}`] : [];
  const mainParagraph = mainLink
    ? `<p style="margin:16px 0;font-size:14px;line-height:21px"><a href="${escapeHtml(mainLink.url)}" style="${BUTTON_STYLE}"><b>${escapeHtml(mainLink.text)}</b></a></p>`
    : "";
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${subject}</title>
</head>
<body style="margin:0;padding:0;background:#f3f4f6;${font};color:#1f2937">
<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="background:#f3f4f6"><tr><td align="center" style="padding:24px 12px">
<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="max-width:680px;background:#ffffff;border:1px solid #e5e7eb;border-radius:6px">
<tr><td style="padding:24px 28px;font-size:13px;line-height:20px;overflow-wrap:anywhere">
<h1 style="margin:0;font-size:20px;line-height:28px;font-weight:600">${subject}</h1>
<p style="margin:8px 0 0;font-size:14px;line-height:21px;color:#4b5563">${escapeHtml(intro)}</p>
${mainParagraph}
${sections}
${more}
</td></tr>
<tr><td style="padding:20px 28px 24px;border-top:1px solid #e5e7eb;font-size:12px;line-height:18px;color:#4b5563;overflow-wrap:anywhere">
${[...whyOf(message).map(escapeHtml), ...historySentences].map((sentence) => `<p style="margin:0 0 6px">${sentence}</p>`).join("\n")}
</td></tr>
</table>
</td></tr></table>
</body>
</html>
`.toWellFormed();
}

/** The border keeps the shape of a button in Outlook, which ignores the padding of links. */
const BUTTON_STYLE =
  "display:inline-block;padding:6px 16px;border:1px solid #1f5fa8;border-radius:4px;background:#1f5fa8;color:#ffffff;text-decoration:none";

const HISTORY_TEXT = "Show this notification";

const moreText = (omittedLines: number): string =>
  `${omittedLines} more ${omittedLines === 1 ? "item is" : "items are"} not shown. The most urgent items are above.`;

const anchors = (urls: readonly string[]): string =>
  urls
    .slice(0, MAX_SENTENCES)
    .map((url) => `<a href="${escapeHtml(url)}">${escapeHtml(url)}</a>`)
    .join(" ");

/** Returns why the recipient gets the mail, for a limited number of rules. The last sentence says how to stop it. */
function whyOf({ why }: Message): string[] {
  const sentences = why
    .slice(0, -1)
    // The first sentence names the service.
    .slice(0, 1 + MAX_SENTENCES)
    .map((sentence) => truncate(sentence, MAX_FACT));
  return [...sentences, ...why.slice(-1)];
}

const htmlOwners = (owners: readonly OwnerGroup[]): string =>
  owners
    .map(({ owner, locations }) =>
      [
        ...(owner === undefined && owners.length === 1 ? [] : [htmlOwner(owner)]),
        ...locations.flatMap(({ location, lines }) => [htmlLocation(location), ...lines.map(htmlLine)]),
      ].join("\n"),
    )
    .join("\n");

/** Maximum length of a heading. An owner tag and the name of an application have at most 256 characters. */
const MAX_HEADING = 400;
const ownerHeading = (owner: string | undefined): string => truncate(ownerText(owner), MAX_HEADING);
const locationHeading = (location: ItemLocation | undefined): string => truncate(locationText(location), MAX_HEADING);

const htmlOwner = (owner: string | undefined): string =>
  `<h2 style="margin:20px 0 0;font-size:16px;line-height:24px;border-top:1px solid #e5e7eb;padding-top:12px">${escapeHtml(ownerHeading(owner))}</h2>`;

const LOCATION_STYLE = "margin:12px 0 0;color:#4b5563";

function htmlLocation(location: ItemLocation | undefined): string {
  const heading = locationHeading(location);
  if (heading === "") return "";
  const name = `<b>${escapeHtml(heading)}</b>`;
  const linked = location?.url === undefined ? name : `<a href="${escapeHtml(location.url)}">${name}</a>`;
  return `<p style="${LOCATION_STYLE}">${[linked, ...assignOwnerLinks(location).map(anchor)].join(" · ")}</p>`;
}

/** The first link is on the name. The others, such as the one to the Azure portal, are beside the facts. */
function htmlLine(line: MessageLine): string {
  const { urgency, label, title, what, command, links } = line;
  const [first, ...others] = links;
  const facts = factLines(factsOf(line)).map(escapeHtml).join("<br>");
  const code = command === undefined ? "" : `<br>Command: <code>${escapeHtml(command)}</code>`;
  const name = `<b>${escapeHtml(truncate(title, MAX_FACT))}</b>`;
  const linked = first ? `<a href="${escapeHtml(first.url)}">${name}</a>` : name;
  return `<p style="margin:8px 0 0"><b style="color:${COLORS[urgency]}">${escapeHtml(label)}</b> ${linked} ${escapeHtml(what)}<br>${[facts, ...others.map(anchor)].join(" · ")}${code}</p>`;
}

const anchor = ({ text, url }: MessageLink): string => `<a href="${escapeHtml(url)}">${escapeHtml(text)}</a>`;

/** Returns the facts that the headings above the line don't contain. */
const factsOf = (line: MessageLine): [string, string][] =>
  factsUnderHeadings(line).map(([label, value]) => [label, truncate(value, MAX_FACT)]);

function textOf(message: Message, sections: string, omittedLines: number): string {
  const { intro, histories, mainLink } = message;
  const links = histories.slice(0, MAX_SENTENCES).join(" ");
  return [
    message.subject,
    intro,
    ...(mainLink ? [`${mainLink.text}: ${mainLink.url}`] : []),
    ...(sections === "" ? [] : [sections]),
    ...(omittedLines === 0 ? [] : [moreText(omittedLines)]),
    "--",
    [...whyOf(message), ...(histories.length > 0 ? [`${HISTORY_TEXT}: ${links}`] : [])].join("\n"),
    "",
  ]
    .join("\n\n")
    .toWellFormed();
}

const textOwners = (owners: readonly OwnerGroup[]): string =>
  owners
    .map(({ owner, locations }) =>
      [
        ...(owner === undefined && owners.length === 1 ? [] : [textOwner(owner)]),
        ...locations.flatMap(({ location, lines }) => [textLocation(location), ...lines.map(textLine)]),
      ]
        .filter((block) => block !== "")
        .join("\n\n"),
    )
    .join("\n\n");

const textOwner = (owner: string | undefined): string => `# ${ownerHeading(owner)}`;

function textLocation(location: ItemLocation | undefined): string {
  const heading = locationHeading(location);
  if (heading === "") return "";
  return [`## ${heading}`, ...assignOwnerLinks(location).map(({ text, url }) => `${text}: ${url}`)].join("\n");
}

function textLine(line: MessageLine): string {
  const { label, title, what, command, links } = line;
  return [
    `${label.toUpperCase()}: ${truncate(title, MAX_FACT)} ${what}`,
    ...factLines(factsOf(line)).map((text) => `  ${text}`),
    ...(command === undefined ? [] : [`  Command: ${command}`]),
    // Only the first link, to have room for more lines: the asset's page has the link to the Azure portal.
    ...links.slice(0, 1).map(({ text, url }) => `  ${text}: ${url}`),
  ].join("\n");
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => ESCAPES[character]!);
