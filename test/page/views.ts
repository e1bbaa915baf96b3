import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, SEED, sampled } from "../support/sampling.ts";
import {
  addresses,
  keepLoaded,
  needsOf,
  openInNewTab,
  operationsOf,
  permissions,
  service,
  showView,
  signIn,
  visitLoadedPage,
  waitForSpinners,
  withBrowser,
  withSeedData,
} from "./fixture.ts";
import { unlicensedHost } from "./unlicensed-host.ts";
import { ALL_LOOKS, EVERY_LOOK, EXTREMES, expectNoVisualProblems, setLook } from "./visual-checks.ts";

// Tests of every view of the page in the browser: layout, accessibility, translated texts, and the main actions.

withBrowser("a person signs in and sees the overview, without requests to other hosts", async () => {
  const opened = await openInNewTab("/");
  const { page, requestedUrls, files, browserErrors } = opened;
  await page.getByRole("heading", { name: "Credential and Secret Lifecycle Service" }).waitFor();
  await expectNoVisualProblems(page, "sign-in");
  // The session check before sign-in returns 401, which the browser logs as an error.
  expect(browserErrors.splice(0).filter((text) => !/401/.test(text))).toEqual([]);
  requestedUrls.length = 0;
  await signIn(page);
  await page.getByRole("heading", { name: "Expiring soon" }).waitFor();
  await page
    .getByText(/kv-|All can be read/)
    .first()
    .waitFor();
  await expectNoVisualProblems(page, "overview");
  await expectNoVisualProblems(page, "overview", EXTREMES);
  expect(requestedUrls.filter((url) => !url.startsWith(`${service.url}/`))).toEqual([]);
  expect(browserErrors).toEqual([]);
  // The charts and their dependencies load after the text.
  const chartsIndex = requestedUrls.findIndex((url) => url.includes("/chart-kinds-"));
  const filesBeforeCharts = files.filter((request) => !requestedUrls.slice(chartsIndex).includes(request.url()));
  const sizes = await Promise.all(
    filesBeforeCharts.map(async (request) => [request.url(), (await request.sizes()).responseBodySize] as const),
  );
  const totalBytes = sizes.reduce((sum, [, size]) => sum + size, 0);
  expect(sizes.length).toBeGreaterThan(3);
  // The text must appear quickly on a slow connection.
  expect(totalBytes, JSON.stringify(sizes)).toBeLessThanOrEqual(250 * 1024);
  keepLoaded(opened);
});

withBrowser("the inventory lists assets by the filters in the address, and a row opens the asset", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await expectNoVisualProblems(page, "inventory");
  await expectNoVisualProblems(page, "inventory", EXTREMES);
  await page.getByRole("row").nth(1).getByRole("link").click();
  await page.getByRole("heading", { name: "Properties" }).waitFor();
  await expectNoVisualProblems(page, "asset");
  expect(browserErrors).toEqual([]);
});

/** A script that returns the status whose color the first box of the view has, such as "Warning". */
const BOX_COLOR = `(() => {
  const box = document.querySelector("main .fui-MessageBar");
  // A new element for each color: a change of the color would start a transition.
  const colorOf = (name) => {
    const probe = document.createElement("i");
    probe.style.color = "var(--colorStatus" + name + "Border1)";
    box.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
  const color = getComputedStyle(box).borderTopColor;
  return ["Danger", "Warning", "Success"].find((name) => colorOf(name) === color) ?? "none";
})()`;

withSeedData("the box with the problems of an asset has the color of the worst one", async () => {
  const credentials = await service.listAll("/api/assets/discovery/assets?source=entra&status=expired");
  const { page } = await visitLoadedPage("/#/license");
  for (const [id, color] of [
    [credentials[0].id, "Danger"],
    // It expires in three days.
    ["kv-shop.secret.smtp", "Warning"],
    // Healthy, with a check of medium severity that fails.
    ["kv-certificates.certificate.shop", "none"],
    ["kv-many.secret.many-0000", "Success"],
  ]) {
    await showView(page, `/inventory/${encodeURIComponent(id)}`);
    await waitForSpinners(page, id);
    await expect.poll(() => page.evaluate(BOX_COLOR), { message: id }).toBe(color);
  }
});

withBrowser("a finding in the audit log is shown as text with its interval and entry", async () => {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const example = document.paths["/audit/verify"].get.responses["200"].content["application/json"].example;
  const [finding] = example.findings;
  const { page } = await visitLoadedPage("/#/audit");
  await page.route("**/audit/verify", (route) =>
    route.fulfill({ json: { ...example, intact: false, nextCursor: null } }),
  );
  await page.getByRole("button", { name: "Verify audit log" }).click();
  const findingItem = page.getByRole("listitem").filter({ hasText: finding.detail }).last();
  expect(await findingItem.innerText()).toMatch(
    /^Entry changed, in the 10-minute interval from .*2026.*: The entry differs from/,
  );
  expect(await findingItem.innerText()).toContain(finding.entryId);
  expect(await findingItem.locator("time").getAttribute("datetime")).toBe(finding.interval);
});

/**
 * Returns the camelCase enum values of the API, such as `needsAttention`, which the page must translate. Setting keys are
 * allowed.
 */
async function enumValuesOfApi(): Promise<Set<string>> {
  const { body: document } = await service.admin("GET", "/openapi.json");
  const { text: settings } = await service.admin("GET", "/api/settings/all");
  const settingKeys = new Set(settings.match(/(?<="key":")\w+/g));
  const values = new Set<string>();
  // `JSON.stringify` calls the function for every member at any depth.
  JSON.stringify(document.components.schemas, (name, value) => {
    if (name === "enum")
      for (const word of value) if (/^[a-z]+[A-Z]/.test(word) && !settingKeys.has(word)) values.add(word);
    return value;
  });
  expect(values.size).toBeGreaterThan(50);
  return values;
}

/** Matches the IDs of assets in vaults. The page shows `vault/name` instead. */
const ASSET_ID = /\bkv-[\w-]+\.(?:secret|key|certificate)\.[\w-]+/g;

/** A script that returns the texts of buttons that look like plain text: without a border, a background and an icon. */
const TEXT_LIKE_BUTTONS = `[...document.querySelectorAll("main button.fui-Button")]
  .filter((button) => button.checkVisibility() && !button.querySelector("svg"))
  .filter((button) => {
    const { backgroundColor, borderTopColor } = getComputedStyle(button);
    return [backgroundColor, borderTopColor].every((color) => color === "transparent" || color === "rgba(0, 0, 0, 0)");
  })
  .map((button) => button.textContent)`;

/**
 * A normal run checks a sample of views in one look each (theme and width), a campaign, the long test run, all views in all
 * looks. `EXTREMES`, used above, are the looks of the narrowest and the widest supported screen.
 */
withSeedData(
  "each view renders in light and dark theme, on narrow and wide screens",
  async () => {
    const { page, browserErrors } = await visitLoadedPage("/#/license");
    const allAddresses = addresses();
    expect(new Set(allAddresses.map(needsOf))).toEqual(new Set(permissions.routes.map(({ needs }) => needs)));
    const apiValues = await enumValuesOfApi();
    for (const [index, view] of sampled(allAddresses, 4).entries()) {
      await showView(page, view);
      await waitForSpinners(page, view);
      // The audit log shows event names and details unchanged.
      if (view !== "/audit") {
        const text = await page.getByRole("main").innerText();
        const shownWords = text.match(/\w+/g) ?? [];
        expect.soft([view, shownWords.filter((word) => apiValues.has(word))]).toEqual([view, []]);
        expect.soft([view, text.match(ASSET_ID) ?? []]).toEqual([view, []]);
      }
      expect.soft([view, await page.evaluate(TEXT_LIKE_BUTTONS)]).toEqual([view, []]);
      await expectNoVisualProblems(
        page,
        view.slice(1).split("/").join("-") || "overview",
        IS_CAMPAIGN ? EVERY_LOOK : [EVERY_LOOK[(index + SEED) % EVERY_LOOK.length]!],
      );
    }
    expect(browserErrors).toEqual([]);
  },
  LONG_MS,
);

/** A script that returns what moves visibly: animations and transitions that take longer than a frame. */
const MOVING = `document.getAnimations()
  .filter((one) => one.playState === "running" && Number(one.effect.getComputedTiming().activeDuration) > 50)
  .map((one) => one.effect.target.className + " " + (one.animationName ?? one.transitionProperty ?? ""))`;

withSeedData("with reduced motion, nothing moves when views and dialogs open", async () => {
  const { page } = await visitLoadedPage("/#/license");
  await page.emulateMedia({ reducedMotion: "reduce" });
  for (const view of ["/", "/inventory?vault=kv-shop", "/dependencies/kv-shop.secret.db", "/settings"]) {
    await showView(page, view);
    expect.soft([view, await page.evaluate(MOVING)]).toEqual([view, []]);
    await waitForSpinners(page, view);
    expect.soft([view, await page.evaluate(MOVING)]).toEqual([view, []]);
  }
  await page.locator("[data-operation]").first().click();
  await page.getByRole("dialog").waitFor();
  expect(await page.evaluate(MOVING)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
});

/**
 * Opens one dialog per operation. Theme and width are set before, because a narrower screen turns a table into a list, and the
 * dialog of a row then closes.
 */
withSeedData(
  "each dialog renders in light and dark theme, on narrow and wide screens",
  async () => {
    const { page, browserErrors } = await visitLoadedPage("/#/license");
    const testedOperations = new Set<string>();
    for (const [index, view] of sampled(addresses(), 4).entries()) {
      await showView(page, view);
      await waitForSpinners(page, view);
      const names = await operationsOf(page);
      for (const operation of names) {
        // "Test match" changes nothing and acts at once, without a dialog.
        const button = page.locator(`[data-operation=${operation}]:not([aria-label^="Test match"])`).first();
        if (testedOperations.has(operation) || (await button.count()) === 0) continue;
        testedOperations.add(operation);
        for (const look of IS_CAMPAIGN ? ALL_LOOKS : [ALL_LOOKS[(index + testedOperations.size) % ALL_LOOKS.length]!]) {
          await setLook(page, look);
          await button.click();
          await page.getByRole("dialog").waitFor();
          await expectNoVisualProblems(page, `dialog-${operation}`, [look]);
          await page.keyboard.press("Escape");
          await page.getByRole("dialog").waitFor({ state: "detached" });
        }
      }
    }
    expect(testedOperations.size).toBeGreaterThan(IS_CAMPAIGN ? 35 : 0);
    expect(browserErrors).toEqual([]);
  },
  LONG_MS,
);

// The blast radius of a secret is the set of resources that use it.
withBrowser("a blast radius is shown as a graph, which stays centered", async () => {
  const { body } = await service.admin("GET", "/api/assets/dependencies?strength=references&limit=1");
  const { page, browserErrors } = await visitLoadedPage(`/#/dependencies/${encodeURIComponent(body.items[0].secret)}`);
  await page.getByRole("heading", { name: "Graph" }).waitFor();
  await page.locator(".react-flow__node").nth(1).waitFor();
  await expectNoVisualProblems(page, "blast-radius");
  // The graph stays centered after the window is resized.
  await page.setViewportSize({ width: 2400, height: 900 });
  const isCentered = () =>
    page.getByRole("img", { name: /^Dependency graph/ }).evaluate((picture) => {
      const { left, right } = picture.getBoundingClientRect();
      const nodes = [...picture.querySelectorAll(".react-flow__node")].map((node) => node.getBoundingClientRect());
      const leftMargin = Math.min(...nodes.map((node) => node.left)) - left;
      const rightMargin = right - Math.max(...nodes.map((node) => node.right));
      return Math.abs(leftMargin - rightMargin) < 100;
    });
  await expect.poll(isCentered).toBe(true);
  expect(browserErrors).toEqual([]);
});

withBrowser("the blast radius of an unknown asset names its ID and links to the search", async () => {
  const { page } = await visitLoadedPage("/#/dependencies/kv-gone.secret.none");
  await page.getByRole("heading", { name: "Asset not found" }).waitFor();
  await page.getByText("kv-gone.secret.none").waitFor();
  const link = page.getByRole("link", { name: "Search the inventory" });
  expect(await link.getAttribute("href")).toBe("#/inventory");
});

withBrowser("without a license, PRO views describe their feature", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/license", unlicensedHost);
  for (const view of ["credentials", "rotation", "sync", "dependencies", "access", "sso", "b2c", "devops"]) {
    await showView(page, `/${view}`);
    await page.getByText("This feature needs a PRO license").first().waitFor();
    if (view === "rotation") await expectNoVisualProblems(page, "without-licence");
  }
  expect(browserErrors).toEqual([]);
});
