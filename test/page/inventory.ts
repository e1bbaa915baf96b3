import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { showView, visitLoadedPage, withBrowser } from "./fixture.ts";
import { MANY_ASSETS } from "./seed-data.ts";

// Tests of the list of assets in the web page, which page.test.ts runs. `withBrowser` declares a test that needs a browser.

withBrowser("the asset list loads pages as the user scrolls, and drops pages that are far away", async () => {
  const { page, requestedUrls, browserErrors } = await visitLoadedPage("/#/inventory?vault=kv-many");
  const list = page.getByRole("region", { name: "Assets" });
  /** Returns for each loaded page of assets whether its request had a cursor. The request for the first page has none. */
  const loadedPages = () =>
    requestedUrls.filter((url) => url.includes("/assets?")).map((url) => new URL(url).searchParams.has("cursor"));
  const ROW_HEIGHT_PX = 40;
  const scrollTo = (row: number) => list.evaluate((element, top) => element.scrollTo({ top }), row * ROW_HEIGHT_PX);
  const waitForAsset = (name: string) => page.getByRole("link", { name, exact: true }).waitFor();
  await page.getByText(`${MANY_ASSETS.toLocaleString("en")} assets`).waitFor();
  await waitForAsset("many-0000");
  expect(loadedPages()).toEqual([false]);
  // A page of the list has 1,000 assets, so the end of one page and the start of the next one are visible here.
  await scrollTo(995);
  await waitForAsset("many-1000");
  await scrollTo(1995);
  await waitForAsset("many-2000");
  await scrollTo(MANY_ASSETS);
  await waitForAsset("many-2199");
  expect(loadedPages()).toEqual([false, true, true]);
  expect(await page.getByRole("row").count()).toBeLessThan(80);
  // The first page was dropped, so it is loaded again.
  await scrollTo(0);
  await waitForAsset("many-0000");
  expect(loadedPages()).toEqual([false, true, true, false]);
  expect(browserErrors).toEqual([]);
});

withBrowser("Back restores the filters and the scroll position", async () => {
  const { page, requestedUrls } = await visitLoadedPage("/#/inventory?vault=kv-many");
  const list = page.getByRole("region", { name: "Assets" });
  await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
  // To row 995, with rows of 40 pixels.
  await list.evaluate((element) => element.scrollTo({ top: 995 * 40 }));
  const link = page.getByRole("link", { name: "many-1000", exact: true });
  await link.click();
  await page.getByRole("heading", { name: "Properties" }).waitFor();
  requestedUrls.length = 0;
  await page.goBack();
  await link.waitFor();
  expect(new URL(page.url()).hash).toBe("#/inventory?vault=kv-many");
  // Only the visible pages are loaded.
  expect(requestedUrls.filter((url) => url.includes("/assets?")).length).toBeLessThan(3);
  // A new visit starts at the top.
  await page.getByRole("navigation").getByRole("link", { name: "Settings", exact: true }).click();
  await page.getByText("scanRetentionDays").first().waitFor();
  await page.getByRole("main").evaluate((main) => main.scrollTo({ top: 700 }));
  await page.getByRole("navigation").getByRole("link", { name: "License", exact: true }).click();
  await page.getByRole("heading", { name: "License", exact: true }).waitFor();
  await page.goBack();
  await expect.poll(() => page.getByRole("main").evaluate((main) => main.scrollTop)).toBe(700);
  await showView(page, "/inventory?vault=kv-many");
  await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
});

withBrowser("the CSV export is one file with all assets that match the filters", async () => {
  const { page } = await visitLoadedPage("/#/inventory?vault=kv-many");
  // Force several parts, as in a large inventory.
  await page.route(/export\/csv/, async (route) => {
    const url = new URL(route.request().url());
    url.pathname = "/api/assets/discovery/assets";
    url.searchParams.set("format", "csv");
    url.searchParams.set("limit", "900");
    await route.continue({ url: String(url) });
  });
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Export as CSV" }).click(),
  ]);
  const text = readFileSync((await download.path())!, "utf8");
  expect(text).toMatch(/^\uFEFF"id"/);
  const [, ...lines] = text.trim().split("\r\n");
  expect(new Set(lines.map((line) => line.split(",")[0])).size).toBe(MANY_ASSETS);
  expect(lines.length).toBe(MANY_ASSETS);
  await page.getByText("MB exported").waitFor();
});
