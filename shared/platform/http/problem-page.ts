import { PROBLEMS, type Problem } from "./problem.ts";
import type { Reply } from "./reply.ts";

/** Whether somebody looks at the answer: browsers ask for HTML by name where they are sent, programs don't. */
export const takesPages = (headers: Headers): boolean => /\btext\/html\b/i.test(headers.get("accept") ?? "");

/** A problem as a page: its title, what to do about it, and the request id to report. It loads and runs nothing. */
export function problemPage(problem: Problem, requestId: string): Reply {
  const { title, status } = PROBLEMS[problem.code];
  const body = [
    `<h1>${escaped(title)}</h1>`,
    `<p>${escaped(problem.message)}</p>`,
    `<p>Request id: <code>${escaped(requestId)}</code></p>`,
    '<p><a href="/">Back to the service</a></p>',
  ].join("");
  const head = `<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(title)}</title>`;
  return {
    status,
    headers: problem.headers,
    content: {
      type: "text/html; charset=utf-8",
      data: `<!doctype html><html lang="en"><head>${head}</head><body>${body}</body></html>`,
    },
  };
}

const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
