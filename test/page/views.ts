import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/sampling.ts";
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
} from "./fixture.ts";
import { unlicensed } from "./unlicensed-host.ts";
import { ALL_LOOKS, EXTREMES, looksRight, setLook } from "./visual-checks.ts";

withBrowser("a person signs in and sees the overview, without requests to other hosts", async () => {
  const opened = await open("/");
  const { page, requested, files, complaints } = opened;
  await page.getByRole("heading", { name: "Credentials and secrets" }).waitFor();
  await looksRight(page, "sign-in");
  // The session check before sign-in returns 401, which the browser logs as an error.
  expect(complaints.splice(0).filter((text) => !/401/.test(text))).toEqual([]);
  requested.length = 0;
  await signIn(page);
  await page.getByRole("heading", { name: "Expiring soon" }).waitFor();
  await page
    .getByText(/kv-|All can be read/)
    .first()
    .waitFor();
  await looksRight(page, "overview");
  await looksRight(page, "overview", EXTREMES);
  expect(requested.filter((url) => !url.startsWith(`${service.url}/`))).toEqual([]);
  expect(complaints).toEqual([]);
  // The charts and their dependencies load after the text.
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

withBrowser("the inventory lists assets by the filters in the address, and a row opens the asset", async () => {
  const { page, complaints } = await visit("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await looksRight(page, "inventory");
  await looksRight(page, "inventory", EXTREMES);
  await page.getByRole("row").nth(1).getByRole("link").click();
  await page.getByRole("heading", { name: "Properties" }).waitFor();
  await looksRight(page, "asset");
  expect(complaints).toEqual([]);
});

withBrowser("a finding in the audit log is shown as text with its interval and entry", async () => {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const example = document.paths["/audit/verify"].get.responses["200"].content["application/json"].example;
  const [finding] = example.findings;
  const { page } = await visit("/#/audit");
  await page.route("**/audit/verify", (route) =>
    route.fulfill({ json: { ...example, intact: false, nextCursor: null } }),
  );
  await page.getByRole("button", { name: "Verify audit log" }).click();
  const shown = page.getByRole("listitem").filter({ hasText: finding.detail }).last();
  expect(await shown.innerText()).toMatch(
    /^Entry changed, in the 10-minute interval from .*2026.*: The entry differs from/,
  );
  expect(await shown.innerText()).toContain(finding.entryId);
  expect(await shown.locator("time").getAttribute("datetime")).toBe(finding.interval);
});

/** Returns the camelCase enum values of the API, such as `needsAttention`, which the page must translate. Setting keys are allowed. */
async function enumValuesOfApi(): Promise<Set<string>> {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const { text: settings } = await service.admin("GET", "/api/settings/all");
  const named = new Set(settings.match(/(?<="key":")\w+/g));
  const values = new Set<string>();
  JSON.stringify(document.components.schemas, (name, value) => {
    if (name === "enum") for (const word of value) if (/^[a-z]+[A-Z]/.test(word) && !named.has(word)) values.add(word);
    return value;
  });
  expect(values.size).toBeGreaterThan(50);
  return values;
}

/** The suite checks a sample of views in one look each, a campaign all views in all looks. */
withPlanted(
  "each view renders in light and dark theme, on narrow and wide screens",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const all = addresses();
    expect(new Set(all.map(needsOf))).toEqual(new Set(offers.routes.map(({ needs }) => needs)));
    const apiValues = await enumValuesOfApi();
    for (const [at, view] of sampled(all, 4).entries()) {
      await show(page, view);
      await isDrawn(page, view);
      // The audit log shows event names and details unchanged.
      if (view !== "/audit") {
        const shown = (await page.getByRole("main").innerText()).match(/\w+/g) ?? [];
        expect.soft([view, shown.filter((word) => apiValues.has(word))]).toEqual([view, []]);
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

/** Opens one dialog per operation. The look is set before, because a row's dialog disappears when a table becomes a list. */
withPlanted(
  "each dialog renders in light and dark theme, on narrow and wide screens",
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
          await setLook(page, look);
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

withBrowser("a blast radius is a graph and a list", async () => {
  const { body } = await service.admin("GET", "/api/assets/dependencies?strength=references&limit=1");
  const { page, complaints } = await visit(`/#/dependencies/${encodeURIComponent(body.items[0].secret)}`);
  await page.getByRole("heading", { name: "Graph" }).waitFor();
  await page.locator(".react-flow__node").nth(1).waitFor();
  await looksRight(page, "blast-radius");
  // The graph stays centered after the window is resized.
  await page.setViewportSize({ width: 2400, height: 900 });
  const isCentred = () =>
    page.getByRole("img", { name: /^Dependency graph/ }).evaluate((picture) => {
      const { left, right } = picture.getBoundingClientRect();
      const nodes = [...picture.querySelectorAll(".react-flow__node")].map((node) => node.getBoundingClientRect());
      const before = Math.min(...nodes.map((one) => one.left)) - left;
      return Math.abs(before - (right - Math.max(...nodes.map((one) => one.right)))) < 100;
    });
  await expect.poll(isCentred).toBe(true);
  expect(complaints).toEqual([]);
});

withBrowser("without a license, PRO views describe their feature", async () => {
  const { page, complaints } = await visit("/#/license", unlicensed);
  for (const view of ["rotation", "sync", "dependencies", "access", "sso", "b2c", "devops"]) {
    await show(page, `/${view}`);
    await page.getByText("This feature needs a PRO license").first().waitFor();
    if (view === "rotation") await looksRight(page, "without-licence");
  }
  expect(complaints).toEqual([]);
});
