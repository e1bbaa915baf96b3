import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { open, show, withBrowser } from "./opened.ts";
import { MANY } from "./planted.ts";

withBrowser("the list is read in pages as it is scrolled, and what is far away is forgotten", async () => {
  const { page, requested, complaints } = await open("/#/inventory?vault=kv-many");
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
  await page.close();
});

withBrowser("Back comes to the same filters and the same place", async () => {
  const { page, requested } = await open("/#/inventory?vault=kv-many");
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
  await page.close();
});

withBrowser("a walk through the list that meets the limit waits, says so, and goes on to the end", async () => {
  const { page } = await open("/#/inventory?vault=kv-many");
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
  await page.getByText("There were too many calls. This page goes on by itself at").waitFor();
  await page.clock.fastForward(60_000);
  expect(statuses).toEqual([429]);
  await page.clock.fastForward(342_000);
  await page.getByRole("link", { name: "many-1000", exact: true }).waitFor();
  const last = page.getByRole("link", { name: `many-${MANY - 1}`, exact: true });
  // The end is known once the page before it was read.
  await expect
    .poll(async () => {
      await list.evaluate((element) => element.scrollTo({ top: element.scrollHeight }));
      await page.clock.runFor(1_000);
      return await last.count();
    })
    .toBe(1);
  expect(statuses).toEqual([429, 200, 200]);
  expect(await page.getByText("There were too many calls").count()).toBe(0);
  await page.close();
});

withBrowser("the export is one file of all that the filters let through", async () => {
  const { page } = await open("/#/inventory?vault=kv-many");
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
  await page.close();
});
