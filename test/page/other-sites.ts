import { expect } from "vitest";
import { context, service, visit, withBrowser, withPlanted } from "./fixture.ts";
import { unlicensed } from "./unlicensed-host.ts";

withBrowser("a form or fetch from another site can't change data", async () => {
  const page = await context.newPage();
  const to = `${service.url}/auth/logout`;
  await page.route("http://elsewhere.example/", (route) =>
    route.fulfill({
      contentType: "text/html",
      body: `<form method="post" action="${to}"><input name="everywhere" value="true"><button>Win</button></form>`,
    }),
  );
  await page.goto("http://elsewhere.example/");
  const tried = await page.evaluate(async (url) => {
    const kinds = ["text/plain", "application/json"];
    const modes = ["no-cors", "cors"] as const;
    const all = kinds.flatMap((type) => modes.map((mode) => ({ type, mode })));
    return await Promise.all(
      all.map(({ type, mode }) =>
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
  }, to);
  expect(tried).toContain("refused");
  const [answer] = await Promise.all([page.waitForResponse(to), page.getByRole("button").click()]);
  expect([401, 403, 415]).toContain(answer.status());
  // The session is still valid.
  const own = await visit("/");
  await own.page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
});

withPlanted(
  "a form from another origin of the same site can't change data, although the browser sends the cookie",
  async () => {
    const other = `${unlicensed}/somebody-elses`;
    const page = await context.newPage();
    // Another port is another origin of the same site, so the browser sends the session cookie.
    await page.route(other, (route) =>
      route.fulfill({
        contentType: "text/html",
        body: `<form method="post" enctype="text/plain" action="${service.url}/alerts/snoozes"><button>Go</button></form>`,
      }),
    );
    await page.goto(other);
    const [sent] = await Promise.all([
      page.waitForResponse((response) => response.url() === `${service.url}/alerts/snoozes`),
      page.getByRole("button", { name: "Go" }).click(),
    ]);
    expect(await sent.request().headerValue("cookie")).toContain("session=");
    expect([sent.status(), await sent.json()]).toMatchObject([403, { code: "crossSite" }]);
    expect((await service.admin("GET", "/alerts/snoozes")).body.total).toBe(1);
    await page.close();
  },
);
