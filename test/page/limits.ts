import { expect } from "vitest";
import { limited } from "./limited.ts";
import { callsAmong, go, isLoaded, open, service, visit, withBrowser } from "./opened.ts";

withBrowser(
  "the overview costs seven calls, one more where a scan read less than all, and says what fails and what mends it",
  async () => {
    const { page, requested, complaints } = await open("/");
    await page.getByText("were read").or(page.getByText("kv-walled")).first().waitFor();
    await page.getByRole("heading", { name: "Last scan" }).waitFor();
    await page.getByText("some subscriptions or vaults could not be read. Begun by").waitFor();
    await isLoaded(page);
    await page.waitForLoadState("networkidle");
    expect(callsAmong(requested).sort()).toEqual([
      "/alerts/history",
      expect.stringMatching(/^\/api\/assets\/discovery\/scan\/\w+\/status$/),
      "/api/assets/discovery/scans",
      "/api/assets/discovery/vaults",
      "/api/assets/summary",
      "/auth/me",
      "/compliance/score",
      "/subscriptions",
    ]);
    const { body } = await service.admin("GET", "/api/assets/discovery/vaults?failing=true");
    for (const text of body.items[0].failures[0].remedy.match(/[^.]+\./g).slice(0, 1))
      await page.getByText(text.trim()).first().waitFor();
    // Where there is no room for a vault's name, a screen reader says it all the same.
    await page.setViewportSize({ width: 360, height: 900 });
    expect(await page.getByRole("list", { name: "The first that end" }).innerText()).toContain("kv-shop");
    expect(complaints).toEqual([]);
    await page.close();
  },
);

withBrowser("every view opened within a minute stays under the limits", async () => {
  const { page, requested, complaints } = await visit("/", limited);
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
});

withBrowser("the page itself is not counted, in the smallest form that the browser takes", async () => {
  const answer = await fetch(`${limited}/`, { headers: { "Accept-Encoding": "gzip, br" } });
  expect([answer.status, answer.headers.get("content-encoding")]).toEqual([200, "br"]);
  expect(await answer.text()).toContain("<noscript>");
  expect(answer.headers.has("ratelimit-remaining")).toBe(false);
  const other = await fetch(`${limited}/nothing`);
  expect([other.status, other.headers.has("ratelimit-remaining")]).toEqual([404, true]);
});
