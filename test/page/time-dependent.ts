/** Behavior over time. The tests move the clock of all pages of the browser, including pages that are loaded later, so they run last.
 */
import { expect, vi } from "vitest";
import { ADMIN } from "../support/service.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { enter, go, requireReload, service, visit, withBrowser, withPlanted } from "./fixture.ts";
import { limited } from "./rate-limited-host.ts";
import { MANY, OTHERS, PASSWORD } from "./seed-data.ts";

withPlanted("Clear filters and Back discard filter text that is not applied yet", async () => {
  const { page, complaints } = await visit("/#/inventory?type=key");
  const main = page.getByRole("main");
  const name = fieldOf(main, "Name contains");
  await name.waitFor();
  // The clock stands still, so the text is not applied before the click.
  await page.clock.install();
  await name.fill("smtp");
  await main.getByRole("button", { name: "Clear filters" }).click();
  await expect.poll(() => page.url()).not.toContain("type=key");
  await page.clock.runFor(2_000);
  expect([await name.inputValue(), page.url()]).toEqual(["", expect.not.stringContaining("search=")]);

  await name.fill("smtp");
  await page.goBack();
  await expect.poll(() => page.url()).toContain("type=key");
  await page.clock.runFor(2_000);
  expect([await name.inputValue(), page.url()]).toEqual(["", expect.not.stringContaining("search=")]);

  await name.fill("sql");
  await fillIn(main, { Status: "expired" });
  await expect.poll(() => page.url()).toMatch(/search=sql.*status=expired/);
  expect(complaints).toEqual([]);
});

withBrowser("a response of the previous version, without a tier, is requested again until it has one", async () => {
  const { page } = await visit("/#/license");
  await page.clock.install();
  let [asked, isBefore] = [0, true];
  await page.route(/\/auth\/me$/, async (route) => {
    const response = await route.fetch();
    const { tier, ...before } = (await response.json()) as { tier: string };
    asked++;
    return route.fulfill({ response, json: isBefore ? before : { ...before, tier } });
  });
  await page.evaluate("location.hash = '#/sync'");
  await page.reload();
  await page.getByText("This feature needs a PRO license").first().waitFor();
  isBefore = false;
  await page.clock.fastForward(20_000);
  await page.getByRole("button", { name: "Create sync" }).waitFor();
  const times = asked;
  await page.clock.fastForward(60_000);
  expect([times > 1, asked]).toEqual([true, times]);
});

withBrowser(
  "scrolling through the asset list waits at the rate limit, shows a notice, and continues to the end",
  async () => {
    const { page } = await visit("/#/inventory?vault=kv-many");
    const list = page.getByRole("region", { name: "Assets" });
    await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
    await page.clock.install();
    let refused = 0;
    const statuses: number[] = [];
    await page.route(/assets\?/, (route) =>
      refused++ === 0
        ? route.fulfill({ status: 429, headers: { "Retry-After": "400" }, json: { code: "rateLimited" } })
        : route.continue(),
    );
    page.on("response", (response) => {
      if (response.url().includes("/assets?")) statuses.push(response.status());
    });
    await list.evaluate((element) => element.scrollTo({ top: element.scrollHeight }));
    await page.getByText("Rate limit reached. The page continues automatically at").waitFor();
    await page.clock.fastForward(60_000);
    expect(statuses).toEqual([429]);
    await page.clock.fastForward(342_000);
    await page.getByRole("link", { name: "many-1000", exact: true }).waitFor();
    const last = page.getByRole("link", { name: `many-${MANY - 1}`, exact: true });
    // The list grows when its last page is loaded.
    await expect
      .poll(async () => {
        await list.evaluate((element) => element.scrollTo({ top: element.scrollHeight }));
        await page.clock.runFor(1_000);
        return await last.count();
      })
      .toBe(1);
    expect(statuses).toEqual([429, 200, 200]);
    expect(await page.getByText("Rate limit reached").count()).toBe(0);
  },
);

withBrowser("data that can't be refreshed stays visible, with its age and the request id", async () => {
  const { page } = await visit("/#/vaults");
  await page.clock.install();
  await page.getByText("kv-shop").first().waitFor();
  await page.route(/discovery\/vaults\?/, (route) =>
    route.fulfill({
      status: 503,
      contentType: "application/problem+json",
      json: {
        type: "/problems/unavailable",
        title: "Not now",
        status: 503,
        detail: "Wait.",
        instance: "REQ-1",
        code: "unavailable",
      },
    }),
  );
  await go(page, "/compliance", "Compliance");
  await page.clock.fastForward(180_000);
  await go(page, "/vaults", "Vaults and subscriptions");
  const notice = page.getByRole("alert");
  await notice.getByText(/The data below was loaded \d+ minutes ago/).waitFor();
  await notice.getByText("Request ID: REQ-1").waitFor();
  expect(await page.getByText("kv-shop").count()).toBeGreaterThan(0);
  await page.unroute(/discovery\/vaults\?/);
  await notice.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => notice.count()).toBe(0);
});

withBrowser("the polling of a scan slows down, and stops while the page is hidden", async () => {
  const { page } = await visit("/#/compliance");
  await page.getByRole("heading", { name: "Compliance", level: 1 }).waitFor();
  await page.clock.install();
  const { body } = await service.admin("GET", "/api/assets/discovery/scans?limit=1");
  const running = { ...body.items[0], status: "running", finishedAt: null };
  const { body: status } = await service.admin("GET", `/api/assets/discovery/scan/${running.scanId}/status`);
  await page.route(/discovery\/scans\?/, (route) => route.fulfill({ json: { ...body, items: [running] } }));
  let [asked, heard] = [0, 0];
  await page.route(/\/status$/, (route) => {
    asked++;
    return route.fulfill({ json: { ...status, status: "running" } });
  });
  page.on("requestfinished", (request) => {
    if (request.url().endsWith("/status")) heard++;
  });
  await go(page, "/", "Overview");
  await page.getByRole("progressbar", { name: "Vaults scanned" }).waitFor();
  const within = async (seconds: number) => {
    const before = asked;
    for (let second = 0; second < seconds; second++) {
      await page.clock.runFor(1_000);
      // The next interval starts with the response.
      await vi.waitUntil(() => heard === asked, { timeout: 150_000, interval: 5 });
    }
    return asked - before;
  };
  const first = await within(30);
  expect(first).toBeGreaterThan(3);
  const later = await within(30);
  expect(later).toBeGreaterThan(0);
  expect(later).toBeLessThan(first);
  const look = (state: string) =>
    page.evaluate((value) => {
      const { document, Event } = globalThis as unknown as { document: EventTarget; Event: typeof globalThis.Event };
      Object.defineProperty(document, "visibilityState", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }, state);
  await look("hidden");
  await within(2);
  expect(await within(60)).toBe(0);
  await look("visible");
  expect(await within(30)).toBeGreaterThan(0);
  requireReload();
});

withPlanted("a rate-limited call shows a notice and is retried automatically", async () => {
  // A user without earlier calls: those would leave the window and free up capacity during the test.
  await enter(OTHERS[0], PASSWORD);
  const { page } = await visit("/", limited);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await page.clock.install();
  // Use up the limit.
  const statuses = await page.evaluate(() =>
    Promise.all(Array.from({ length: 60 }, async () => (await fetch("/auth/me")).status)),
  );
  expect(new Set(statuses)).toEqual(new Set([200, 429]));
  await go(page, "/vaults", "Vaults and subscriptions");
  await page
    .getByText(/^Rate limit reached. The page continues automatically at .* it shows data that is already loaded/)
    .waitFor();
  expect(await page.getByText("kv-shop").count()).toBe(0);
  // The minute passes by the page's clock. The service's clock does not move, so another host without limits responds.
  await page.route(/\/(subscriptions|vaults)\?/, (route) =>
    route.continue({ url: route.request().url().replace(limited, service.url) }),
  );
  await page.clock.fastForward(62_000);
  await page.getByText("kv-shop").first().waitFor();
  await page.clock.fastForward(2_000);
  await expect.poll(() => page.getByText("Rate limit reached").count()).toBe(0);
  await enter(ADMIN.username, ADMIN.password);
});
