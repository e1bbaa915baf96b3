import { expect } from "vitest";
import { LONG_MS, sampled } from "../support/sampling.ts";
import {
  addresses,
  requireReload,
  seedAddresses,
  service,
  showView,
  visitLoadedPage,
  waitForSpinners,
  waitUntilLoaded,
  withBrowser,
  withSeedData,
} from "./fixture.ts";
import { createHostileResponses, LONG_HOSTILE_TEXT } from "./hostile-responses.ts";
import { MARKUP } from "./seed-data.ts";

// Names and tags come from users and other systems. These tests check that the page never interprets them as markup.

withBrowser("markup in a tag is shown as text", async () => {
  const { page } = await visitLoadedPage("/#/inventory?search=db");
  await page.getByText('<img src=x onerror="').first().waitFor();
  await page.getByRole("link", { name: "db", exact: true }).click();
  await page.getByRole("heading", { name: "Properties" }).waitFor();
  await page.getByText("<script>").first().waitFor();
  expect(await page.title()).toBe("Inventory - Credential and Secret Lifecycle Service");
});

withSeedData("an application credential is shown by the application's name and the credential's name", async () => {
  const { page } = await visitLoadedPage("/");
  const credentialLink = page.getByRole("link", { name: /App 002.*\/.*secret-0/ });
  await credentialLink.first().waitFor();
  await showView(page, "/inventory?source=entra");
  await credentialLink.first().waitFor();
});

withSeedData("markup in names from users and other systems is shown as text", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/settings");
  await page.setViewportSize({ width: 360, height: 900 });
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  /** Views that show a name with markup, and a part of the name. */
  const viewsWithMarkup: [string, string][] = [
    ["/alerts", MARKUP],
    [seedAddresses.rule, MARKUP],
    ["/rotation", MARKUP],
    [seedAddresses.application, MARKUP],
    ["/dependencies", MARKUP],
    ["/dependencies/kv-shop.secret.db", MARKUP],
    ["/b2c", MARKUP],
    [seedAddresses.tenant, MARKUP],
    ["/devops", MARKUP],
    ["/access", MARKUP],
    ["/sso", MARKUP],
  ];
  for (const [view, text] of sampled(viewsWithMarkup, 5)) {
    await showView(page, view);
    const name = page.getByRole("main").getByText(text).first();
    expect.soft(await name.waitFor({ timeout: 150_000 }).then(() => view, String)).toBe(view);
    expect([view, await page.locator("img[src=x]").count()]).toEqual([view, 0]);
    const tooWide = await page.getByRole("main").evaluate((main) => main.scrollWidth - main.clientWidth);
    expect.soft([view, tooWide]).toEqual([view, 0]);
    expect(await page.title()).not.toContain("taken");
  }
  expect(browserErrors).toEqual([]);
});

/** Every free-text value in the API's responses is replaced by a text that is as hostile as the API's schema allows. */
withSeedData(
  "hostile text of 4,000 characters in every free-text field is shown as text in every view",
  async () => {
    const { page, browserErrors } = await visitLoadedPage("/#/license");
    const hostile = createHostileResponses((await service.admin("GET", "/openapi.json")).body);
    await page.setViewportSize({ width: 320, height: 900 });
    await page.route(/\/(api|alerts|audit|auth|b2c|compliance|subscriptions|system)\b/, async (route) => {
      const request = route.request();
      const answer = await route.fetch();
      if (!answer.headers()["content-type"]?.includes("application/json")) return route.fulfill({ response: answer });
      const json = hostile.replaceTexts(request.method(), new URL(request.url()).pathname, await answer.json());
      return route.fulfill({ response: answer, json });
    });
    // Drop responses that were loaded without hostile text.
    await page.reload();
    await page.locator("main h1").waitFor();
    // The default columns on a narrow screen contain no free text.
    const allAddresses = addresses().map((view) => (view === "/inventory" ? "/inventory?columns=name,owner" : view));
    const views = sampled(allAddresses, 3);
    for (const view of views) {
      await showView(page, view);
      await waitForSpinners(page, view);
      await waitUntilLoaded(page);
      // The license view has no free text, nor has the permissions view before permissions are checked.
      if (!["/license", "/permissions"].includes(view)) {
        const text = page.getByRole("main").getByText(LONG_HOSTILE_TEXT).first();
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
    expect(browserErrors).toEqual([]);
    requireReload();
  },
  LONG_MS,
);
