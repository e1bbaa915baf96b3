import { expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import { acceptsHtml, problemPage } from "../../shared/platform/http/problem-page.ts";

// Browsers that navigate to a failing address get a problem as an HTML page instead of a problem document.

test("a problem page shows the title and detail of the problem with HTML escaped", () => {
  const { status, headers, content } = problemPage(
    new Problem("signInFailed", `Not <script src="x">alert('1')</script> & so on`, { headers: { "Retry-After": "9" } }),
    "order_4711",
  );
  expect([status, headers, content?.type]).toEqual([400, { "Retry-After": "9" }, "text/html; charset=utf-8"]);
  const body =
    "<h1>The sign-in failed</h1>" +
    "<p>Not &lt;script src=&quot;x&quot;&gt;alert('1')&lt;/script&gt; &amp; so on</p>" +
    "<p>Request id: <code>order_4711</code></p>" +
    '<p><a href="/">Back to the service</a></p>';
  const head =
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>The sign-in failed</title>';
  expect(content?.data).toBe(`<!doctype html><html lang="en"><head>${head}</head><body>${body}</body></html>`);
});

test.each<[string | undefined, boolean]>([
  ["text/html,application/xhtml+xml,*/*;q=0.8", true],
  ["TEXT/HTML", true],
  ["application/json", false],
  ["*/*", false],
  ["text/html5", false],
  [undefined, false],
])("a caller with Accept: %s gets an HTML page: %s", (accept, getsPage) => {
  expect(acceptsHtml(new Headers(accept === undefined ? {} : { accept }))).toBe(getsPage);
});
