import { onOneLine } from "../http/text.ts";
import type { Urgency } from "./items.ts";
import type { Message, MessageLine, Place } from "./message.ts";

/** Longest subject: some clients cut longer ones, and RFC 5322 limits a line to 998 characters. */
const MAX_SUBJECT = 180;
/**
 * Bytes of a mail, HTML, plain text and subject together. Gmail cuts a message off at 102 KB of HTML, and shows only
 * that there is more.
 */
export const MAX_MAIL_BYTES = 90_000;
/** Characters of one fact, so that no line alone fills a mail. */
const MAX_FACT = 800;
/** Sentences about rules, and links to the history: a mail that waited long may be of many. */
const MAX_SENTENCES = 12;

/** Colours with at least 4.5:1 against white: https://www.w3.org/TR/WCAG22/#contrast-minimum */
const COLOURS: Record<Urgency, string> = {
  expired: "#8b1a1a",
  critical: "#b3360b",
  warning: "#7a5b00",
  notice: "#1f5fa8",
};
const LABELS: Record<Urgency, string> = { expired: "Act now", critical: "Urgent", warning: "Soon", notice: "Notice" };

export interface MailContent {
  subject: string;
  html: string;
  text: string;
}

/**
 * A mail in HTML that needs no style sheet, image or script, and the same in plain text: by owner and vault, the most urgent
 * first. What does not fit is counted and linked.
 */
export function mailOf(message: Message): MailContent {
  const shown = linesThatFit(message);
  const rest = message.lines.length - shown.length;
  const owners = grouped(shown);
  return {
    subject: subjectOf(message),
    html: htmlOf(message, htmlOwners(owners), rest),
    text: textOf(message, textOwners(owners), rest),
  };
}

const subjectOf = ({ subject }: Message): string => cut(onOneLine(subject), MAX_SUBJECT);

const bytes = (...texts: readonly string[]): number => texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);

/** From the most urgent on, as many lines as a mail may hold with the headings over them. */
function linesThatFit(message: Message): MessageLine[] {
  const { lines } = message;
  const frame = bytes(htmlOf(message, "", lines.length), textOf(message, "", lines.length), subjectOf(message));
  const [owners, vaults] = [new Set<string>(), new Set<string>()];
  let left = MAX_MAIL_BYTES - frame;
  for (const [index, line] of lines.entries()) {
    const { place } = line;
    const vault = place && JSON.stringify([place.owner, place.vault]);
    left -= bytes(htmlLine(line), textLine(line)) + 3;
    if (place && !owners.has(place.owner)) left -= bytes(htmlOwner(place.owner), textOwner(place.owner)) + 3;
    if (place && vault !== undefined && !vaults.has(vault)) left -= bytes(htmlVault(place), textVault(place)) + 3;
    if (left < 0) return lines.slice(0, index);
    if (place) owners.add(place.owner);
    if (vault !== undefined) vaults.add(vault);
  }
  return [...lines];
}

/** Lines by owner and then by vault, both in the order of their most urgent line. */
type Grouped = Map<string | undefined, Map<string | undefined, MessageLine[]>>;

function grouped(lines: readonly MessageLine[]): Grouped {
  const owners: Grouped = new Map();
  for (const line of lines) {
    const vaults = owners.get(line.place?.owner) ?? new Map<string | undefined, MessageLine[]>();
    owners.set(line.place?.owner, vaults);
    const vault = line.place?.vault;
    vaults.set(vault, [...(vaults.get(vault) ?? []), line]);
  }
  return owners;
}

function htmlOf(message: Message, sections: string, rest: number): string {
  const { intro, histories, pageUrl } = message;
  const font = "font-family:'Segoe UI',Helvetica,Arial,sans-serif";
  const subject = escaped(onOneLine(message.subject));
  const more =
    rest === 0 ? "" : `<p style="margin:16px 0 0"><b>${escaped(moreText(rest))}</b> ${anchors(histories)}</p>`;
  const links = [
    ...(pageUrl ? [`<a href="${escaped(pageUrl)}">Open the service</a>`] : []),
    ...(histories.length > 0 ? [`This message in the history: ${anchors(histories)}`] : []),
  ];
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
<p style="margin:8px 0 0;font-size:14px;line-height:21px;color:#4b5563">${escaped(intro)}</p>
${sections}
${more}
</td></tr>
<tr><td style="padding:20px 28px 24px;border-top:1px solid #e5e7eb;font-size:12px;line-height:18px;color:#4b5563;overflow-wrap:anywhere">
${[...whyOf(message).map(escaped), ...links].map((sentence) => `<p style="margin:0 0 6px">${sentence}</p>`).join("\n")}
</td></tr>
</table>
</td></tr></table>
</body>
</html>
`.toWellFormed();
}

const moreText = (rest: number): string => `… and ${rest} more, none more urgent than these.`;

const anchors = (urls: readonly string[]): string =>
  urls
    .slice(0, MAX_SENTENCES)
    .map((url) => `<a href="${escaped(url)}">${escaped(url)}</a>`)
    .join(" ");

/** Why one gets it, of how many rules it ever is. The last sentence says how to stop it. */
function whyOf({ why }: Message): string[] {
  const sentences = why
    .slice(0, -1)
    .slice(0, MAX_SENTENCES)
    .map((sentence) => cut(sentence, MAX_FACT));
  return [...sentences, ...why.slice(-1)];
}

const htmlOwners = (owners: Grouped): string =>
  [...owners]
    .map(([owner, vaults]) =>
      [
        ...(owner === undefined ? [] : [htmlOwner(owner)]),
        ...[...vaults.values()].flatMap((lines) => [htmlVault(lines[0]!.place), ...lines.map(htmlLine)]),
      ].join("\n"),
    )
    .join("\n");

const ownerText = (owner: string): string => (owner === "" ? "No owner given" : `Owner: ${cut(owner, 256)}`);

const htmlOwner = (owner: string): string =>
  `<h2 style="margin:20px 0 0;font-size:16px;line-height:24px;border-top:1px solid #e5e7eb;padding-top:12px">${escaped(ownerText(owner))}</h2>`;

function htmlVault(place: Place | undefined): string {
  if (place?.vault === undefined) return "";
  const name = `<b>${escaped(place.vault)}</b>`;
  const vault = place.url === undefined ? name : `<a href="${escaped(place.url)}">${name}</a>`;
  return `<p style="margin:12px 0 0;color:#4b5563">Vault ${vault}, subscription ${escaped(place.subscription ?? "unknown")}</p>`;
}

function htmlLine(line: MessageLine): string {
  const { urgency, title, what, link } = line;
  const facts = factsOf(line).map(([label, value]) => `${escaped(label)}: ${escaped(value)}`);
  const name = `<b>${escaped(cut(title, MAX_FACT))}</b>`;
  const linked = link ? `<a href="${escaped(link.url)}">${name}</a>` : name;
  return `<p style="margin:8px 0 0"><b style="color:${COLOURS[urgency]}">${LABELS[urgency]}</b> ${linked} ${escaped(what)}<br>${facts.join(" · ")}</p>`;
}

/** What the headings over a line do not say already. */
const factsOf = ({ facts, place }: MessageLine): [string, string][] =>
  facts
    .filter(
      ([label]) => !(place && (label === "Owner" || (place.vault && (label === "Vault" || label === "Subscription")))),
    )
    .map(([label, value]) => [label, cut(value, MAX_FACT)]);

function textOf(message: Message, sections: string, rest: number): string {
  const { intro, histories, pageUrl } = message;
  const links = histories.slice(0, MAX_SENTENCES).join(" ");
  return [
    oneLine(message.subject),
    intro,
    ...(sections === "" ? [] : [sections]),
    ...(rest === 0 ? [] : [`${moreText(rest)} ${links}`.trim()]),
    "--",
    [
      ...whyOf(message).map(oneLine),
      ...(pageUrl ? [`The service: ${pageUrl}`] : []),
      ...(histories.length > 0 ? [`This message in the history: ${links}`] : []),
    ].join("\n"),
    "",
  ]
    .join("\n\n")
    .toWellFormed();
}

const textOwners = (owners: Grouped): string =>
  [...owners]
    .map(([owner, vaults]) =>
      [
        ...(owner === undefined ? [] : [textOwner(owner)]),
        ...[...vaults.values()].flatMap((lines) => [textVault(lines[0]!.place), ...lines.map(textLine)]),
      ]
        .filter((block) => block !== "")
        .join("\n\n"),
    )
    .join("\n\n");

const textOwner = (owner: string): string => `# ${oneLine(ownerText(owner))}`;

const textVault = (place: Place | undefined): string =>
  place?.vault === undefined ? "" : oneLine(`## Vault ${place.vault}, subscription ${place.subscription ?? "unknown"}`);

function textLine(line: MessageLine): string {
  const { urgency, title, what, link } = line;
  return [
    `${LABELS[urgency].toUpperCase()}: ${oneLine(cut(title, MAX_FACT))} ${oneLine(what)}`,
    `  ${factsOf(line)
      .map(([label, value]) => `${label}: ${oneLine(value)}`)
      .join(" · ")}`,
    ...(link ? [`  ${link.url}`] : []),
  ].join("\n");
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => ESCAPES[character]!);

/** A name can't begin a line of its own in the plain text. */
const oneLine = (text: string): string => text.replace(/[\r\n\u0085\u2028\u2029]+/g, " ");

const cut = (text: string, most: number): string =>
  (text.length > most ? `${text.slice(0, most - 1)}…` : text).toWellFormed();
