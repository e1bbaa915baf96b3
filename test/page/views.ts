import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/cases.ts";
import { ALL_LOOKS, EXTREMES, looksRight, takeOn } from "./looks.ts";
import {
  addresses,
  isDrawn,
  keep,
  needsOf,
  offers,
  open,
  operationsOf,
  service,
  show,
  signIn,
  visit,
  withBrowser,
  withPlanted,
} from "./opened.ts";
import { unlicensed } from "./unlicensed.ts";

withBrowser("a person signs in and sees the overview, with nothing from another host", async () => {
  const opened = await open("/");
  const { page, requested, files, complaints } = opened;
  await page.getByRole("heading", { name: "Credentials and secrets" }).waitFor();
  await looksRight(page, "sign-in");
  // That nobody is signed in yet is found out by a 401, which the browser tells as an error.
  expect(complaints.splice(0).filter((text) => !/401/.test(text))).toEqual([]);
  requested.length = 0;
  await signIn(page);
  await page.getByRole("heading", { name: "What ends next" }).waitFor();
  await page
    .getByText(/kv-|All can be read/)
    .first()
    .waitFor();
  await looksRight(page, "overview");
  await looksRight(page, "overview", EXTREMES);
  expect(requested.filter((url) => !url.startsWith(`${service.url}/`))).toEqual([]);
  expect(complaints).toEqual([]);
  // The charts, with what only they use, are asked for once the words are there.
  const withCharts = requested.findIndex((url) => url.includes("/chart-kinds-"));
  const before = files.filter((request) => !requested.slice(withCharts).includes(request.url()));
  const sizes = await Promise.all(
    before.map(async (request) => [request.url(), (await request.sizes()).responseBodySize] as const),
  );
  const total = sizes.reduce((sum, [, size]) => sum + size, 0);
  expect(sizes.length).toBeGreaterThan(3);
  expect(total, JSON.stringify(sizes)).toBeLessThanOrEqual(250 * 1024);
  keep(opened);
});

withBrowser("the inventory shows every asset, filters in the address, and one asset in full", async () => {
  const { page, complaints } = await visit("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await looksRight(page, "inventory");
  await looksRight(page, "inventory", EXTREMES);
  await page.getByRole("row").nth(1).getByRole("link").click();
  await page.getByRole("heading", { name: "Facts" }).waitFor();
  await looksRight(page, "asset");
  expect(complaints).toEqual([]);
});

/** Each kind has its words by the page's types. */
withBrowser("what is found in the audit log is told in words, with the ten minutes and the entry", async () => {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const example = document.paths["/audit/verify"].get.responses["200"].content["application/json"].example;
  const [finding] = example.findings;
  const { page } = await visit("/#/audit");
  await page.route("**/audit/verify", (route) =>
    route.fulfill({ json: { ...example, intact: false, nextCursor: null } }),
  );
  await page.getByRole("button", { name: "Verify the log" }).click();
  const told = page.getByRole("listitem").filter({ hasText: finding.detail }).last();
  expect(await told.innerText()).toMatch(/^Entry changed, in the ten minutes from .*2026.*: The entry is not what/);
  expect(await told.innerText()).toContain(finding.entryId);
  expect(await told.locator("time").getAttribute("datetime")).toBe(finding.interval);
});

/** Of all that an answer may say, what nobody would say so to a person, such as `needsAttention`; settings keep their names. */
async function wordsOfApi(): Promise<Set<string>> {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const { text: settings } = await service.admin("GET", "/api/settings/all");
  const named = new Set(settings.match(/(?<="key":")\w+/g));
  const words = new Set<string>();
  JSON.stringify(document.components.schemas, (name, value) => {
    if (name === "enum") for (const word of value) if (/^[a-z]+[A-Z]/.test(word) && !named.has(word)) words.add(word);
    return value;
  });
  expect(words.size).toBeGreaterThan(50);
  return words;
}

/** Each look is that of a view in the suite, and of all views in a campaign. */
withPlanted(
  "each view is there in light and dark, on narrow and wide screens",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const all = addresses();
    expect(new Set(all.map(needsOf))).toEqual(new Set(offers.routes.map(({ needs }) => needs)));
    const ofApi = await wordsOfApi();
    for (const [at, view] of sampled(all, 4).entries()) {
      await show(page, view);
      await isDrawn(page, view);
      // The log is shown as it is written.
      if (view !== "/audit") {
        const shown = (await page.getByRole("main").innerText()).match(/\w+/g) ?? [];
        expect.soft([view, shown.filter((word) => ofApi.has(word))]).toEqual([view, []]);
      }
      await looksRight(
        page,
        view.slice(1).split("/").join("-") || "overview",
        IS_CAMPAIGN ? ALL_LOOKS : [ALL_LOOKS[at % 4]!],
      );
    }
    expect(complaints).toEqual([]);
  },
  LONG_MS,
);

/** One dialog of each operation, opened in each look: a row's goes with the row when a table becomes a list. */
withPlanted(
  "each dialog is there in light and dark, on narrow and wide screens",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const seen = new Set<string>();
    for (const [at, view] of sampled(addresses(), 2).entries()) {
      await show(page, view);
      await isDrawn(page, view);
      const names = await operationsOf(page);
      for (const operation of names) {
        if (seen.has(operation)) continue;
        seen.add(operation);
        for (const look of IS_CAMPAIGN ? ALL_LOOKS : [ALL_LOOKS[(at + seen.size) % 4]!]) {
          await takeOn(page, look);
          await page.locator(`[data-operation=${operation}]`).first().click();
          await page.getByRole("dialog").waitFor();
          await looksRight(page, `dialog-${operation}`, [look]);
          await page.keyboard.press("Escape");
          await page.getByRole("dialog").waitFor({ state: "detached" });
        }
      }
    }
    expect(seen.size).toBeGreaterThan(IS_CAMPAIGN ? 35 : 0);
    expect(complaints).toEqual([]);
  },
  LONG_MS,
);

withBrowser("a blast radius is a picture and a list", async () => {
  const { body } = await service.admin("GET", "/api/assets/dependencies?strength=references&limit=1");
  const { page, complaints } = await visit(`/#/dependencies/${encodeURIComponent(body.items[0].secret)}`);
  await page.getByRole("heading", { name: "Picture" }).waitFor();
  await page.locator(".react-flow__node").nth(1).waitFor();
  await looksRight(page, "blast-radius");
  // As much of the picture is free to its left as to its right, whatever the screen was before.
  await page.setViewportSize({ width: 2400, height: 900 });
  const isCentred = () =>
    page.getByRole("img", { name: /the list of consumers says the same/ }).evaluate((picture) => {
      const { left, right } = picture.getBoundingClientRect();
      const nodes = [...picture.querySelectorAll(".react-flow__node")].map((node) => node.getBoundingClientRect());
      const before = Math.min(...nodes.map((one) => one.left)) - left;
      return Math.abs(before - (right - Math.max(...nodes.map((one) => one.right)))) < 100;
    });
  await expect.poll(isCentred).toBe(true);
  expect(complaints).toEqual([]);
});

withBrowser("without a licence the PRO views say what they would do", async () => {
  const { page, complaints } = await visit("/#/license", unlicensed);
  for (const view of ["rotation", "sync", "dependencies", "access", "sso", "b2c", "devops"]) {
    await show(page, `/${view}`);
    await page.getByText("This needs a PRO licence").first().waitFor();
    if (view === "rotation") await looksRight(page, "without-licence");
  }
  expect(complaints).toEqual([]);
});
