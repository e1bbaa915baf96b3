// Renders a page with the accepted mails, for people who try out the service. The control API serves it at
// /control/mails/view.

import type { ServiceResponse } from "./http.ts";
import type { StoredMail } from "./mail.ts";

/**
 * Returns the list of mails, newest first, with the selected one below it.
 *
 * @param number - Position of a mail in the order of their arrival, from 1. Undefined: the newest.
 */
export function mailList(mails: readonly StoredMail[], number: number | undefined): ServiceResponse {
  const selected = number ?? mails.length;
  const rows = mails
    .map(({ at, to, cc, bcc, subject }, index) => {
      const isSelected = index + 1 === selected;
      const link = `<a href="/control/mails/view/${index + 1}"${isSelected ? ' aria-current="page"' : ""}>${escapeHtml(subject)}</a>`;
      return `<tr><td>${escapeHtml(at.slice(0, 19).replace("T", " "))}</td><td>${escapeHtml([...to, ...cc, ...bcc].join(", "))}</td><td>${link}</td></tr>`;
    })
    .reverse();
  const mail = mails[selected - 1];
  const content =
    mail === undefined
      ? "<p>No mails yet. Create an alert rule that sends mails, or test one, and reload this page.</p>"
      : `<h2>${escapeHtml(mail.subject)}</h2>
<iframe title="The selected mail" sandbox="allow-popups allow-popups-to-escape-sandbox" src="/control/mails/view/${selected}/content"></iframe>`;
  return htmlPage(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Mails of the simulated cloud</title>
<style>
body{font-family:'Segoe UI',Helvetica,Arial,sans-serif;margin:24px;color:#1f2937}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:4px 12px 4px 0;vertical-align:top;overflow-wrap:anywhere}
.list{max-height:30vh;overflow:auto}iframe{width:100%;height:60vh;border:1px solid #e5e7eb}[aria-current]{font-weight:600}
</style>
</head>
<body>
<h1>Mails of the simulated cloud</h1>
<p>No mail left this machine. Times are in UTC.</p>
${mails.length === 0 ? "" : `<div class="list" tabindex="0" role="region" aria-label="Mails"><table><thead><tr><th>Sent</th><th>To</th><th>Subject</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`}
${content}
</body>
</html>
`);
}

/** Returns the content of a mail as the recipient sees it. Links open in a new tab. */
export function mailContent({ html, plainText = "" }: StoredMail): ServiceResponse {
  const content = html ?? `<pre>${escapeHtml(plainText)}</pre>`;
  return htmlPage(content.replace(/<head>|^/, (start) => `${start}<base target="_blank">`));
}

/** Mails contain names that others chose, so scripts are forbidden. */
const htmlPage = (content: string): ServiceResponse => ({
  status: 200,
  headers: { "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'" },
  text: { type: "text/html; charset=utf-8", content },
});

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => ESCAPES[character]!);
