import { expect } from "vitest";
import { context, service, visitLoadedPage, withBrowser, withSeedData } from "./fixture.ts";
import { unlicensedHost } from "./unlicensed-host.ts";

/*
 * Tests of requests that a page of another site or origin sends to the service in the user's browser, with the session's cookie.
 * `withBrowser` and `withSeedData` declare tests.
 */

withBrowser("a form or fetch from another site can't change data", async () => {
  const page = await context.newPage();
  const signOutUrl = `${service.url}/auth/logout`;
  await page.route("http://elsewhere.example/", (route) =>
    route.fulfill({
      contentType: "text/html",
      body: `<form method="post" action="${signOutUrl}"><input name="everywhere" value="true"><button>Win</button></form>`,
    }),
  );
  await page.goto("http://elsewhere.example/");
  const fetchResults = await page.evaluate(async (url) => {
    const kinds = ["text/plain", "application/json"];
    const modes = ["no-cors", "cors"] as const;
    const attempts = kinds.flatMap((type) => modes.map((mode) => ({ type, mode })));
    return await Promise.all(
      attempts.map(({ type, mode }) =>
        fetch(url, {
          method: "POST",
          mode,
          credentials: "include",
          headers: { "Content-Type": type },
          body: "{}",
        }).then(
          (answer) => answer.type,
          () => "refused",
        ),
      ),
    );
  }, signOutUrl);
  // `refused`: the browser did not let the fetch read a response. An opaque response (no-cors) proves nothing, so the form's
  // answer and the session are checked too.
  expect(fetchResults).toContain("refused");
  const [answer] = await Promise.all([page.waitForResponse(signOutUrl), page.getByRole("button").click()]);
  // 401 without a cookie, 403 as a request from another site, or 415 for the content type of a form.
  expect([401, 403, 415]).toContain(answer.status());
  // The session is still valid.
  const loaded = await visitLoadedPage("/");
  await loaded.page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
});

withSeedData(
  "a form from another origin of the same site can't change data, although the browser sends the cookie",
  async () => {
    const foreignPage = `${unlicensedHost}/other-page`;
    const page = await context.newPage();
    // Another port is another origin of the same site, so the browser sends the session cookie.
    await page.route(foreignPage, (route) =>
      route.fulfill({
        contentType: "text/html",
        body: `<form method="post" enctype="text/plain" action="${service.url}/alerts/snoozes"><button>Go</button></form>`,
      }),
    );
    await page.goto(foreignPage);
    const [sent] = await Promise.all([
      page.waitForResponse((response) => response.url() === `${service.url}/alerts/snoozes`),
      page.getByRole("button", { name: "Go" }).click(),
    ]);
    expect(await sent.request().headerValue("cookie")).toContain("session=");
    expect([sent.status(), await sent.json()]).toMatchObject([403, { code: "crossSite" }]);
    // The snooze of the seed data.
    expect((await service.admin("GET", "/alerts/snoozes")).body.total).toBe(1);
    await page.close();
  },
);
