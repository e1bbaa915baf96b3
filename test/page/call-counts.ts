import { expect } from "vitest";
import {
  callsAmong,
  goToView,
  openInNewTab,
  service,
  showView,
  visitLoadedPage,
  waitUntilLoaded,
  withBrowser,
} from "./fixture.ts";
import { limitedHost } from "./rate-limited-host.ts";

// Tests of the number and size of the requests of the web page, which page.test.ts runs. `withBrowser` declares a test that needs
// a browser.

withBrowser(
  "the overview needs twelve API calls after an incomplete scan, and shows the remediation of failures",
  async () => {
    const { page, requestedUrls, browserErrors } = await openInNewTab("/");
    await page.getByText("kv-walled").first().waitFor();
    await page.getByRole("heading", { name: "Last scan" }).waitFor();
    await page.getByText("some subscriptions or vaults could not be read. Started by").waitFor();
    await waitUntilLoaded(page);
    await page.waitForLoadState("networkidle");
    expect(callsAmong(requestedUrls).sort()).toEqual([
      "/alerts/summary",
      // For the number of assets that expire within a week.
      "/api/assets/discovery/assets",
      "/api/assets/discovery/changes",
      "/api/assets/discovery/scans",
      "/api/assets/summary",
      "/api/coverage",
      // For the days of the statuses critical and warning, which other views share.
      "/api/settings/all",
      "/approvals",
      "/auth/me",
      // For the setup steps of administrators.
      "/auth/sso/config",
      "/compliance/breakdown",
      "/compliance/score",
    ]);
    const { body } = await service.admin("GET", "/api/assets/discovery/vaults?failing=true");
    // The first sentence shows that the page has the remediation.
    const [firstSentence] = body.items[0].failures[0].remedy.match(/[^.]+\./);
    await page.getByText(firstSentence.trim()).first().waitFor();
    // A narrow screen shows the vault's name too.
    await page.setViewportSize({ width: 360, height: 900 });
    expect(await page.getByRole("list", { name: "Next to expire" }).innerText()).toContain("kv-shop");
    expect(browserErrors).toEqual([]);
    await page.close();
  },
);

withBrowser("opening every view within a minute stays within the rate limits", async () => {
  const { page, requestedUrls, browserErrors } = await visitLoadedPage("/", limitedHost);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  const names = await page.getByRole("navigation").getByRole("link").allTextContents();
  expect(names.length).toBeGreaterThan(9);
  for (const name of names) {
    await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
    await page.getByRole("main").getByRole("heading", { level: 1 }).waitFor();
    await waitUntilLoaded(page);
  }
  await goToView(page, "/inventory/kv-shop.secret.db", "db");
  await page.getByText("app-orders").first().waitFor();
  await waitUntilLoaded(page);
  const calls = callsAmong(requestedUrls);
  expect(browserErrors).toEqual([]);
  expect(calls.length, calls.join("\n")).toBeGreaterThan(20);
  // The host's rate limit per minute.
  expect(calls.length, calls.join("\n")).toBeLessThanOrEqual(60);
});

withBrowser("the pages of several assets share what is the same for all of them", async () => {
  const [first, second] = await service.listAll("/api/assets/discovery/assets?vault=kv-shop&type=secret");
  const { page, requestedUrls, browserErrors } = await visitLoadedPage("/#/license");
  const open = async ({ id }: { id: string }) => {
    requestedUrls.length = 0;
    await showView(page, `/inventory/${encodeURIComponent(id)}`);
    await waitUntilLoaded(page);
    await page.waitForLoadState("networkidle");
    return callsAmong(requestedUrls);
  };
  expect(await open(first)).toContain("/alerts/rules");
  const calls = await open(second);
  // Seven pages of assets a minute stay within a limit of 60 requests.
  expect(calls.length, calls.join("\n")).toBeLessThanOrEqual(8);
  expect(calls.filter((path) => /rules|snoozes|settings|blast-radius/.test(path))).toEqual([]);
  expect(browserErrors).toEqual([]);
});

withBrowser("the page's own files don't count toward the rate limit and are compressed with Brotli", async () => {
  const answer = await fetch(`${limitedHost}/`, { headers: { "Accept-Encoding": "gzip, br" } });
  expect([answer.status, answer.headers.get("content-encoding")]).toEqual([200, "br"]);
  expect(await answer.text()).toContain("<noscript>");
  expect(answer.headers.has("ratelimit-remaining")).toBe(false);
  const other = await fetch(`${limitedHost}/nothing`);
  expect([other.status, other.headers.has("ratelimit-remaining")]).toEqual([404, true]);
});
