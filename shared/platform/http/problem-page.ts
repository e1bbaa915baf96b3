import { PROBLEMS, type Problem } from "./problem.ts";
import type { Reply } from "./reply.ts";

/** Returns whether the caller is a browser that navigates: browsers then request HTML explicitly, programs don't. */
export const acceptsHtml = (headers: Headers): boolean => /\btext\/html\b/i.test(headers.get("accept") ?? "");

/**
 * Returns a problem as an HTML page with its title, the fix and the request id. The page loads no resources and runs no script.
 */
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
