import { expect } from "vitest";
import { LONG_MS, sampled } from "../support/sampling.ts";
import {
  addresses,
  isDrawn,
  isLoaded,
  planted,
  requireReload,
  service,
  show,
  visit,
  withBrowser,
  withPlanted,
} from "./fixture.ts";
import { createHostile, LONG } from "./hostile-responses.ts";
import { MARKUP } from "./seed-data.ts";

withBrowser("markup in a tag is shown as text", async () => {
  const { page } = await visit("/#/inventory?search=db");
  await page.getByText('<img src=x onerror="').first().waitFor();
  await page.getByRole("link", { name: "db", exact: true }).click();
  await page.getByRole("heading", { name: "Properties" }).waitFor();
  await page.getByText("<script>").first().waitFor();
  expect(await page.title()).toBe("Inventory - Credentials and secrets");
});

withPlanted("an application credential is shown by the application's name and its own, not by ids", async () => {
  const { page } = await visit("/");
  const ofApp = page.getByRole("link", { name: /App 002.*: .*secret-0/ });
  await ofApp.first().waitFor();
  await show(page, "/inventory?source=entra");
  await ofApp.first().waitFor();
});

withPlanted("markup in names from users and other systems is shown as text", async () => {
  const { page, complaints } = await visit("/#/settings");
  await page.setViewportSize({ width: 360, height: 900 });
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  const shown: [string, string][] = [
    ["/alerts", MARKUP],
    [planted.rule, MARKUP],
    ["/rotation", MARKUP],
    [planted.application, MARKUP],
    ["/dependencies", MARKUP],
    ["/dependencies/kv-shop.secret.db", MARKUP],
    ["/b2c", MARKUP],
    [planted.tenant, MARKUP],
    ["/devops", MARKUP],
    ["/access", MARKUP],
    ["/sso", MARKUP],
  ];
  for (const [view, text] of sampled(shown, 5)) {
    await show(page, view);
    const name = page.getByRole("main").getByText(text).first();
    expect.soft(await name.waitFor({ timeout: 150_000 }).then(() => view, String)).toBe(view);
    expect([view, await page.locator("img[src=x]").count()]).toEqual([view, 0]);
    const tooWide = await page.getByRole("main").evaluate((main) => main.scrollWidth - main.clientWidth);
    expect.soft([view, tooWide]).toEqual([view, 0]);
    expect(await page.title()).not.toContain("taken");
  }
  expect(complaints).toEqual([]);
});

/** Azure limits tags to 256 characters, but the page must handle any text that the API's schema allows. */
withPlanted(
  "hostile text of 4,000 characters in every free-text field is shown as text in every view",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const hostile = createHostile((await service.admin("GET", "/openapi.json")).body);
    await page.setViewportSize({ width: 320, height: 900 });
    await page.route(/\/(api|alerts|audit|auth|b2c|compliance|subscriptions|system)\b/, async (route) => {
      const request = route.request();
      const answer = await route.fetch();
      if (!answer.headers()["content-type"]?.includes("application/json")) return route.fulfill({ response: answer });
      const json = hostile.answer(request.method(), new URL(request.url()).pathname, await answer.json());
      return route.fulfill({ response: answer, json });
    });
    // Drop responses that were loaded without hostile text.
    await page.reload();
    await page.locator("main h1").waitFor();
    // The default columns on a narrow screen contain no free text.
    const all = addresses().map((view) => (view === "/inventory" ? "/inventory?columns=name,owner" : view));
    const views = sampled(all, 3);
    for (const view of views) {
      await show(page, view);
      await isDrawn(page, view);
      await isLoaded(page);
      // The license view has no free text.
      if (view !== "/license") {
        const text = page.getByRole("main").getByText(LONG).first();
        expect.soft(await text.waitFor({ timeout: 150_000 }).then(() => view, String)).toBe(view);
      }
      const tooWide = await page.evaluate(() => {
        const main = document.querySelector("main")!;
        return [document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth];
      });
      expect.soft([view, tooWide]).toEqual([view, [0, 0]]);
      expect.soft([view, await page.locator("img[src=x], main script").count()]).toEqual([view, 0]);
      expect.soft(await page.title(), view).not.toContain("taken");
    }
    expect(complaints).toEqual([]);
    requireReload();
  },
  LONG_MS,
);
