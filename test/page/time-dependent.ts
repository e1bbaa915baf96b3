/**
 * Tests of behavior over time: rate limits, polling, and stale data. `page.clock.install()` replaces the clock of the whole
 * browser, which all tests share: also of pages that later tests load. So page.test.ts imports this file last.
 */
import { expect, vi } from "vitest";
import { ADMIN } from "../support/service.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { goToView, requireReload, service, signInAs, visitLoadedPage, withBrowser, withSeedData } from "./fixture.ts";
import { limitedHost } from "./rate-limited-host.ts";
import { MANY_ASSETS, OTHER_USERS, PASSWORD } from "./seed-data.ts";

withSeedData("Clear filters and Back discard filter text that is not applied yet", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/inventory?type=key");
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
  expect(browserErrors).toEqual([]);
});

// During an upgrade, hosts of the previous version still answer, and their response of `/auth/me` names no tier (license).
withBrowser("a response of the previous version, without a tier, is requested again until it has one", async () => {
  const { page } = await visitLoadedPage("/#/license");
  await page.clock.install();
  let [requestCount, isPreviousVersion] = [0, true];
  await page.route(/\/auth\/me$/, async (route) => {
    const response = await route.fetch();
    const { tier, ...withoutTier } = (await response.json()) as { tier: string };
    requestCount++;
    return route.fulfill({ response, json: isPreviousVersion ? withoutTier : { ...withoutTier, tier } });
  });
  await page.evaluate("location.hash = '#/sync'");
  await page.reload();
  await page.getByText("This feature needs a PRO license").first().waitFor();
  isPreviousVersion = false;
  await page.clock.fastForward(20_000);
  await page.getByRole("button", { name: "Create sync" }).waitFor();
  const countWithTier = requestCount;
  await page.clock.fastForward(60_000);
  expect([countWithTier > 1, requestCount]).toEqual([true, countWithTier]);
});

withBrowser(
  "scrolling through the asset list waits at the rate limit, shows a notice, and continues to the end",
  async () => {
    const { page } = await visitLoadedPage("/#/inventory?vault=kv-many");
    const list = page.getByRole("region", { name: "Assets" });
    await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
    await page.clock.install();
    let requestCount = 0;
    const statuses: number[] = [];
    // Only the first request is rate limited.
    await page.route(/assets\?/, (route) =>
      requestCount++ === 0
        ? route.fulfill({ status: 429, headers: { "Retry-After": "400" }, json: { code: "rateLimited" } })
        : route.continue(),
    );
    page.on("response", (response) => {
      if (response.url().includes("/assets?")) statuses.push(response.status());
    });
    await list.evaluate((element) => element.scrollTo({ top: element.scrollHeight }));
    await page
      .getByText("This page reached the limit of requests in a minute or an hour. It continues automatically at")
      .waitFor();
    await page.clock.fastForward(60_000);
    expect(statuses).toEqual([429]);
    // 402 seconds after the response: more than its Retry-After of 400.
    await page.clock.fastForward(342_000);
    await page.getByRole("link", { name: "many-1000", exact: true }).waitFor();
    const lastAsset = page.getByRole("link", { name: `many-${MANY_ASSETS - 1}`, exact: true });
    // The list grows when its last page is loaded.
    await expect
      .poll(async () => {
        await list.evaluate((element) => element.scrollTo({ top: element.scrollHeight }));
        await page.clock.runFor(1_000);
        return await lastAsset.count();
      })
      .toBe(1);
    expect(statuses).toEqual([429, 200, 200]);
    expect(await page.getByText("This page reached the limit of requests").count()).toBe(0);
  },
);

withBrowser("data that can't be refreshed stays visible, with its age and the request id", async () => {
  const { page } = await visitLoadedPage("/#/vaults");
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
  await goToView(page, "/compliance", "Compliance");
  await page.clock.fastForward(180_000);
  await goToView(page, "/vaults", "Vaults");
  const notice = page.getByRole("alert");
  await notice.getByText(/The data below may be out of date. It was loaded \d+ minutes ago/).waitFor();
  await notice.getByText("Request ID: REQ-1").waitFor();
  expect(await page.getByText("kv-shop").count()).toBeGreaterThan(0);
  await page.unroute(/discovery\/vaults\?/);
  await notice.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => notice.count()).toBe(0);
});

withBrowser("the polling of a scan slows down, and stops while the page is hidden", async () => {
  const { page } = await visitLoadedPage("/#/compliance");
  await page.getByRole("heading", { name: "Compliance", level: 1 }).waitFor();
  await page.clock.install();
  const { body } = await service.admin("GET", "/api/assets/discovery/scans?limit=1");
  const running = { ...body.items[0], status: "running", finishedAt: null };
  const { body: status } = await service.admin("GET", `/api/assets/discovery/scan/${running.scanId}/status`);
  await page.route(/discovery\/scans\?/, (route) => route.fulfill({ json: { ...body, items: [running] } }));
  let [requestCount, responseCount] = [0, 0];
  await page.route(/\/status$/, (route) => {
    requestCount++;
    return route.fulfill({ json: { ...status, status: "running" } });
  });
  page.on("requestfinished", (request) => {
    if (request.url().endsWith("/status")) responseCount++;
  });
  await goToView(page, "/", "Overview");
  await page.getByRole("progressbar", { name: "Vaults scanned" }).waitFor();
  /** Moves the page's clock ahead by this time, and returns the number of polls within it. */
  const pollsWithin = async (seconds: number) => {
    const countBefore = requestCount;
    for (let second = 0; second < seconds; second++) {
      await page.clock.runFor(1_000);
      // The next interval starts with the response.
      await vi.waitUntil(() => responseCount === requestCount, { timeout: 150_000, interval: 5 });
    }
    return requestCount - countBefore;
  };
  const firstPolls = await pollsWithin(30);
  expect(firstPolls).toBeGreaterThan(3);
  const laterPolls = await pollsWithin(30);
  expect(laterPolls).toBeGreaterThan(0);
  expect(laterPolls).toBeLessThan(firstPolls);
  const setVisibility = (state: string) =>
    page.evaluate((value) => {
      const { document, Event } = globalThis as unknown as { document: EventTarget; Event: typeof globalThis.Event };
      Object.defineProperty(document, "visibilityState", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }, state);
  await setVisibility("hidden");
  await pollsWithin(2);
  expect(await pollsWithin(60)).toBe(0);
  await setVisibility("visible");
  expect(await pollsWithin(30)).toBeGreaterThan(0);
  requireReload();
});

withBrowser("the frame and the title of the view are shown while the first request is rate limited", async () => {
  const { page } = await visitLoadedPage("/#/vaults");
  await page.clock.install();
  let requestCount = 0;
  await page.route("**/auth/me", (route) =>
    requestCount++ === 0
      ? route.fulfill({ status: 429, headers: { "Retry-After": "30" }, json: { code: "rateLimited" } })
      : route.continue(),
  );
  await page.reload();
  await page.getByText("This page reached the limit of requests").waitFor();
  await page.getByRole("heading", { name: "Vaults", level: 1 }).waitFor();
  await page.getByText("Credential and Secret Lifecycle Service").waitFor();
  const navigation = page.getByRole("navigation", { name: "Views" });
  await navigation.getByRole("link", { name: "Inventory", exact: true }).click();
  await page.getByRole("heading", { name: "Inventory", level: 1 }).waitFor();
  // A view that only some roles can open is not listed before the role is known.
  expect(await navigation.getByRole("link", { name: "Permissions", exact: true }).count()).toBe(0);
  await page.clock.fastForward(31_000);
  await page.getByRole("region", { name: "Assets" }).waitFor();
  await navigation.getByRole("link", { name: "Permissions", exact: true }).waitFor();
  requireReload();
});

withSeedData("a rate-limited call shows a notice and is retried automatically", async () => {
  // A user without a call in the last minute. Otherwise, earlier calls would leave the service's one-minute window during the
  // test, and the service would allow new calls while the test expects 429.
  await signInAs(OTHER_USERS[0], PASSWORD);
  const { page } = await visitLoadedPage("/", limitedHost);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await page.clock.install();
  // Use up the limit.
  const statuses = await page.evaluate(() =>
    Promise.all(Array.from({ length: 60 }, async () => (await fetch("/auth/me")).status)),
  );
  expect(new Set(statuses)).toEqual(new Set([200, 429]));
  await goToView(page, "/vaults", "Vaults");
  await page
    .getByText(
      /^This page reached the limit of requests in a minute or an hour. It continues .* without a reload. .* parts that show “Loading” .* are missing/,
    )
    .waitFor();
  expect(await page.getByText("kv-shop").count()).toBe(0);
  // The minute passes by the page's clock. The service's clock does not move, so another host without limits responds.
  await page.route(/\/(subscriptions|vaults)\?/, (route) =>
    route.continue({ url: route.request().url().replace(limitedHost, service.url) }),
  );
  await page.clock.fastForward(62_000);
  await page.getByText("kv-shop").first().waitFor();
  await page.clock.fastForward(2_000);
  await expect.poll(() => page.getByText("This page reached the limit of requests").count()).toBe(0);
  await signInAs(ADMIN.username, ADMIN.password);
});
