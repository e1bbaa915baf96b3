import type { Urgency } from "./items.ts";
import type { Message, MessageLine } from "./message.ts";

/** Longest subject: some clients cut longer ones, and RFC 5322 limits a line to 998 characters. */
const MAX_SUBJECT = 180;

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

/** A mail in HTML that needs no style sheet, image or script, and the same in plain text. */
export function mailOf(message: Message): MailContent {
  const { subject } = message;
  return {
    subject: (subject.length > MAX_SUBJECT ? `${subject.slice(0, MAX_SUBJECT - 1)}…` : subject).toWellFormed(),
    html: htmlOf(message).toWellFormed(),
    text: textOf(message).toWellFormed(),
  };
}

function htmlOf({ subject, intro, lines, why, historyUrl }: Message): string {
  const font = "font-family:'Segoe UI',Helvetica,Arial,sans-serif";
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escaped(subject)}</title>
</head>
<body style="margin:0;padding:0;background:#f3f4f6;${font};color:#1f2937">
<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="background:#f3f4f6"><tr><td align="center" style="padding:24px 12px">
<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="max-width:680px;background:#ffffff;border:1px solid #e5e7eb;border-radius:6px">
<tr><td style="padding:24px 28px 8px">
<h1 style="margin:0;font-size:20px;line-height:28px;font-weight:600;overflow-wrap:anywhere">${escaped(subject)}</h1>
<p style="margin:8px 0 0;font-size:14px;line-height:21px;color:#4b5563">${escaped(intro)}</p>
</td></tr>
${lines.map(htmlLine).join("\n")}
<tr><td style="padding:8px 0 0"></td></tr>
<tr><td style="padding:20px 28px 24px;border-top:1px solid #e5e7eb;font-size:12px;line-height:18px;color:#4b5563">
${why.map((sentence) => `<p style="margin:0 0 6px;overflow-wrap:anywhere">${escaped(sentence)}</p>`).join("\n")}
${historyUrl ? `<p style="margin:0;overflow-wrap:anywhere">This message in the history: <a href="${escaped(historyUrl)}" style="color:#1f5fa8">${escaped(historyUrl)}</a></p>` : ""}
</td></tr>
</table>
</td></tr></table>
</body>
</html>
`;
}

function htmlLine({ urgency, title, what, facts, link }: MessageLine): string {
  const colour = COLOURS[urgency];
  const rows = facts.map(
    ([label, value]) =>
      `<tr><td style="padding:0 12px 0 0;color:#4b5563;white-space:nowrap;vertical-align:top">${escaped(label)}</td><td style="overflow-wrap:anywhere">${escaped(value)}</td></tr>`,
  );
  return `<tr><td style="padding:8px 28px">
<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="border-left:4px solid ${colour}"><tr><td style="padding:6px 0 8px 14px">
<p style="margin:0;font-size:12px;line-height:18px;font-weight:600;color:${colour}">${LABELS[urgency]}</p>
<p style="margin:0;font-size:15px;line-height:22px;overflow-wrap:anywhere"><strong>${escaped(title)}</strong> ${escaped(what)}</p>
<table role="presentation" cellspacing="0" cellpadding="0" style="font-size:13px;line-height:20px;margin:4px 0 0">${rows.join("")}</table>
${link ? `<p style="margin:6px 0 0;font-size:13px;line-height:20px"><a href="${escaped(link.url)}" style="color:#1f5fa8">${escaped(link.text)}</a></p>` : ""}
</td></tr></table>
</td></tr>`;
}

function textOf({ subject, intro, lines, why, historyUrl }: Message): string {
  const blocks = lines.map(({ urgency, title, what, facts, link }) =>
    [
      `${LABELS[urgency].toUpperCase()}: ${oneLine(title)} ${oneLine(what)}`,
      ...facts.map(([label, value]) => `  ${label}: ${oneLine(value)}`),
      ...(link ? [`  ${link.text}: ${link.url}`] : []),
    ].join("\n"),
  );
  return [
    oneLine(subject),
    intro,
    ...blocks,
    "--",
    [...why, ...(historyUrl ? [`This message in the history: ${historyUrl}`] : [])].join("\n"),
    "",
  ].join("\n\n");
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => ESCAPES[character]!);

/** A name can't begin a line of its own in the plain text. */
const oneLine = (text: string): string => text.replace(/[\r\n\u0085\u2028\u2029]+/g, " ");
