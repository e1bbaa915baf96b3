import { beforeAll, expect, vi } from "vitest";
import { ADMIN } from "../support/service.ts";
import { callsAmong, enter, go, isLoaded, open, service, withBrowser, withPlanted } from "./opened.ts";
import { OTHERS, PASSWORD } from "./planted.ts";

/** With the rate limits of a deployment that sets none. */
let limited: string;
beforeAll(async () => {
  ({ url: limited } = await service.addHost({ RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" }));
});

withBrowser("the overview costs six calls, and says what fails and what mends it", async () => {
  const { page, requested, complaints } = await open("/");
  await page.getByText("All can be read.").or(page.getByText("kv-walled")).first().waitFor();
  await page.getByRole("heading", { name: "Last scan" }).waitFor();
  await page.getByText("Some vaults could not be read. Begun by").waitFor();
  await isLoaded(page);
  await page.waitForLoadState("networkidle");
  expect(callsAmong(requested).sort()).toEqual([
    "/alerts/history",
    "/api/assets/discovery/scans",
    "/api/assets/discovery/vaults",
    "/api/assets/summary",
    "/auth/me",
    "/compliance/score",
  ]);
  const { body } = await service.admin("GET", "/api/assets/discovery/vaults?failing=true");
  for (const text of body.items[0].failures[0].remedy.match(/[^.]+\./g).slice(0, 1))
    await page.getByText(text.trim()).first().waitFor();
  // Where there is no room for a vault's name, a screen reader says it all the same.
  await page.setViewportSize({ width: 360, height: 900 });
  expect(await page.getByRole("list", { name: "The first that end" }).innerText()).toContain("kv-shop");
  expect(complaints).toEqual([]);
  await page.close();
});

withBrowser("every view opened within a minute stays under the limits", async () => {
  const { page, requested, complaints } = await open("/", limited);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  const names = await page.getByRole("navigation").getByRole("link").allTextContents();
  expect(names.length).toBeGreaterThan(9);
  for (const name of names) {
    await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
    await page.getByRole("main").getByRole("heading", { level: 1 }).waitFor();
    await isLoaded(page);
  }
  await go(page, "/inventory/kv-shop.secret.db", "db");
  await page.getByText("app-orders").first().waitFor();
  await isLoaded(page);
  const calls = callsAmong(requested);
  expect(complaints).toEqual([]);
  expect(calls.length, calls.join("\n")).toBeGreaterThan(20);
  expect(calls.length, calls.join("\n")).toBeLessThanOrEqual(60);
  await page.close();
});

withPlanted("a call that comes too often waits, says so, and goes on by itself", async () => {
  // Somebody of whom nothing is counted yet: calls of before would make room again as they leave the minute.
  await enter(OTHERS[0], PASSWORD);
  const { page } = await open("/", limited);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await page.clock.install();
  // Until the limit is reached, by the same person.
  const statuses = await page.evaluate(() =>
    Promise.all(Array.from({ length: 60 }, async () => (await fetch("/auth/me")).status)),
  );
  expect(new Set(statuses)).toEqual(new Set([200, 429]));
  await go(page, "/vaults", "Vaults and subscriptions");
  await page.getByText(/^There were too many calls. This page goes on by itself at .* it shows what it had/).waitFor();
  expect(await page.getByText("kv-shop").count()).toBe(0);
  // The minute has passed: for the page by its clock, for the service by another one that does not count.
  await page.route(/\/(subscriptions|vaults)\?/, (route) =>
    route.continue({ url: route.request().url().replace(limited, service.url) }),
  );
  await page.clock.fastForward(62_000);
  await page.getByText("kv-shop").first().waitFor();
  await page.clock.fastForward(2_000);
  await expect.poll(() => page.getByText("There were too many calls").count()).toBe(0);
  await page.close();
  await enter(ADMIN.username, ADMIN.password);
});

withBrowser("the page itself is not counted, in the smallest form that the browser takes", async () => {
  const answer = await fetch(`${limited}/`, { headers: { "Accept-Encoding": "gzip, br" } });
  expect([answer.status, answer.headers.get("content-encoding")]).toEqual([200, "br"]);
  expect(await answer.text()).toContain("<noscript>");
  expect(answer.headers.has("ratelimit-remaining")).toBe(false);
  const other = await fetch(`${limited}/nothing`);
  expect([other.status, other.headers.has("ratelimit-remaining")]).toEqual([404, true]);
});

withBrowser("what can't be read again stays, with its age and the request to ask about", async () => {
  const { page } = await open("/#/vaults");
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
  await notice.getByText(/What is shown below was read \d+ minutes ago/).waitFor();
  await notice.getByText("Request REQ-1").waitFor();
  expect(await page.getByText("kv-shop").count()).toBeGreaterThan(0);
  await page.unroute(/discovery\/vaults\?/);
  await notice.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => notice.count()).toBe(0);
  await page.close();
});

withBrowser("a scan is watched less and less often, and not while nobody looks", async () => {
  const { page } = await open("/#/compliance");
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
  await page.getByRole("progressbar", { name: "Vaults that were read" }).waitFor();
  const within = async (seconds: number) => {
    const before = asked;
    for (let second = 0; second < seconds; second++) {
      await page.clock.runFor(1_000);
      // The next wait begins with the answer.
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
  await page.close();
});
