import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { show, visit, withBrowser } from "./opened.ts";
import { MANY } from "./planted.ts";

withBrowser("the list is read in pages as it is scrolled, and what is far away is forgotten", async () => {
  const { page, requested, complaints } = await visit("/#/inventory?vault=kv-many");
  const list = page.getByRole("region", { name: "Assets" });
  const pages = () =>
    requested.filter((url) => url.includes("/assets?")).map((url) => new URL(url).searchParams.has("cursor"));
  const scrollTo = (row: number) => list.evaluate((element, top) => element.scrollTo({ top }), row * 40);
  const sees = (name: string) => page.getByRole("link", { name, exact: true }).waitFor();
  await page.getByText(`${MANY.toLocaleString("en")} assets`).waitFor();
  await sees("many-0000");
  expect(pages()).toEqual([false]);
  await scrollTo(995);
  await sees("many-1000");
  await scrollTo(1995);
  await sees("many-2000");
  await scrollTo(MANY);
  await sees("many-2199");
  expect(pages()).toEqual([false, true, true]);
  expect(await page.getByRole("row").count()).toBeLessThan(80);
  // The first page is not kept: it is read again.
  await scrollTo(0);
  await sees("many-0000");
  expect(pages()).toEqual([false, true, true, false]);
  expect(complaints).toEqual([]);
});

withBrowser("Back comes to the same filters and the same place", async () => {
  const { page, requested } = await visit("/#/inventory?vault=kv-many");
  const list = page.getByRole("region", { name: "Assets" });
  await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
  await list.evaluate((element) => element.scrollTo({ top: 995 * 40 }));
  const link = page.getByRole("link", { name: "many-1000", exact: true });
  await link.click();
  await page.getByRole("heading", { name: "Facts" }).waitFor();
  requested.length = 0;
  await page.goBack();
  await link.waitFor();
  expect(new URL(page.url()).hash).toBe("#/inventory?vault=kv-many");
  // The pages that are seen are read, not those before them.
  expect(requested.filter((url) => url.includes("/assets?")).length).toBeLessThan(3);
  // Whoever comes anew begins at the beginning.
  await page.getByRole("navigation").getByRole("link", { name: "Settings", exact: true }).click();
  await page.getByText("scanRetentionDays").first().waitFor();
  await page.getByRole("main").evaluate((main) => main.scrollTo({ top: 700 }));
  await page.getByRole("navigation").getByRole("link", { name: "Licence", exact: true }).click();
  await page.getByRole("heading", { name: "Licence", exact: true }).waitFor();
  await page.goBack();
  await expect.poll(() => page.getByRole("main").evaluate((main) => main.scrollTop)).toBe(700);
  await show(page, "/inventory?vault=kv-many");
  await page.getByRole("link", { name: "many-0000", exact: true }).waitFor();
});

withBrowser("the export is one file of all that the filters let through", async () => {
  const { page } = await visit("/#/inventory?vault=kv-many");
  // As where there are more than the API puts into one part.
  await page.route(/export\/csv/, async (route) => {
    const url = new URL(route.request().url());
    url.pathname = "/api/assets/discovery/assets";
    url.searchParams.set("format", "csv");
    url.searchParams.set("limit", "900");
    await route.continue({ url: String(url) });
  });
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Export all as CSV" }).click(),
  ]);
  const text = readFileSync((await download.path())!, "utf8");
  expect(text).toMatch(/^\uFEFF"id"/);
  const [, ...lines] = text.trim().split("\r\n");
  expect(new Set(lines.map((line) => line.split(",")[0])).size).toBe(MANY);
  expect(lines.length).toBe(MANY);
  await page.getByText("saved: all of them").waitFor();
});
