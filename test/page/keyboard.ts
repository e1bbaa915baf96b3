import type { Page } from "playwright-core";
import { expect } from "vitest";
import { LONG_MS, sampled } from "../support/sampling.ts";
import {
  addresses,
  context,
  operationsOf,
  permissions,
  showView,
  visitLoadedPage,
  waitForSpinners,
  waitUntilLoaded,
  withSeedData,
} from "./fixture.ts";
import { MARKUP } from "./seed-data.ts";

// Tests that the page can be used with the keyboard alone: the main task of each view, and every control by the Tab key.

/**
 * Returns the focused element: its name, whether the page shows that it has the focus, its id, and whether it is inside of the
 * element that the selector `part` matches.
 */
const focused = (page: Page, part = "body") =>
  page.evaluate((selector) => {
    // biome-ignore lint/suspicious/noExplicitAny: the page's own document, whose types this program does not have
    const { document, getComputedStyle } = globalThis as any;
    const element = document.activeElement;
    const isFocusVisible = [element, element.parentElement].some((one) =>
      [undefined, "::after"].some((part) => {
        const { outlineStyle, boxShadow, borderBottomWidth, textDecorationStyle } = getComputedStyle(one, part);
        // Fluent UI shows the focus as an outline, a thicker field border, or a double underline.
        if (outlineStyle !== "none" || boxShadow !== "none") return true;
        return Number.parseFloat(borderBottomWidth) > 1 || textDecorationStyle === "double";
      }),
    );
    const label = element.labels?.[0]?.textContent;
    const nameOr = (label: unknown) =>
      String(element.getAttribute("aria-label") ?? label ?? element.textContent).trim();
    const isWithin: boolean = element.closest(selector) !== null;
    return { text: nameOr(label), isFocusVisible, id: String(element.id || nameOr(undefined)), isWithin };
  }, part);

/** Presses Tab until an element with this name has the focus. */
async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  const passedElements: string[] = [];
  // More Tab stops than any tested view has.
  for (let step = 0; step < 80; step++) {
    await page.keyboard.press("Tab");
    const { text, isFocusVisible } = await focused(page);
    passedElements.push(text);
    if (typeof name === "string" ? text !== name : !name.test(text)) continue;
    expect(isFocusVisible, `the focus on ${text}`).toBe(true);
    return;
  }
  throw new Error(`The Tab key reaches no ${name}, but: ${passedElements.join(" | ")}`);
}

/** Opens a form with its button, fills it in with `fill`, and presses the button `action`, all by keyboard. */
async function sendForm(page: Page, button: string | RegExp, fill: () => Promise<void>, action: string): Promise<void> {
  await tabTo(page, button);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await fill();
  await tabTo(page, action);
  await page.keyboard.press("Enter");
}

const waitForText = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
const waitForClosedDialog = (page: Page) => page.getByRole("dialog").waitFor({ state: "detached" });
const fillNothing = async () => {};
const waitForAddress = (page: Page, part: string) => expect.poll(() => new URL(page.url()).hash).toContain(part);

/** Follows a link by keyboard and waits for the heading of the opened view. */
async function follow(page: Page, link: string | RegExp, heading: string): Promise<void> {
  await tabTo(page, link);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

/** The path of each view in `views.ts`, and a function that does the main task of the view by keyboard. */
const MAIN_TASKS: [string, (page: Page) => Promise<void>][] = [
  [
    "/",
    async (page) => {
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press("Tab");
      expect((await focused(page)).text).toBe("Skip to content");
      await page.keyboard.press("Enter");
      expect(await page.evaluate("document.activeElement.id")).toBe("main");
      // Open an expiring asset, then another view through the navigation with the arrow keys.
      await tabTo(page, "smtp");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "smtp", level: 1 }).waitFor();
      await expect.poll(() => page.evaluate("document.activeElement.id")).toBe("main");
      await waitUntilLoaded(page);
      await tabTo(page, "Copy");
      await tabTo(page, "Overview");
      await page.keyboard.press("ArrowDown");
      expect((await focused(page)).text).toBe("Inventory");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Inventory", level: 1 }).waitFor();
    },
  ],
  [
    "/inventory",
    async (page) => {
      await page.evaluate("document.querySelector('main').focus()");
      await page.keyboard.press("Tab");
      await page.keyboard.type("smtp");
      await page.getByText("1 asset", { exact: true }).waitFor();
      await tabTo(page, "More filters");
      await tabTo(page, "Columns");
      await page.keyboard.press("Enter");
      await page.getByRole("checkbox", { name: "Last modified" }).waitFor();
      await page.keyboard.press("Escape");
      await expect.poll(async () => (await focused(page)).text).toBe("Columns");
      await tabTo(page, "smtp");
    },
  ],
  [
    "/changes",
    async (page) => {
      // The search opens from every view.
      await page.keyboard.press("Control+k");
      await page.getByRole("dialog", { name: "Search" }).waitFor();
      await page.keyboard.type("smtp");
      await page.getByRole("region", { name: "Assets" }).getByText("smtp").waitFor();
      await page.keyboard.press("ArrowDown");
      expect((await focused(page)).text).toBe("smtp");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "smtp", level: 1 }).waitFor();
      await follow(page, "Inventory", "Inventory");
    },
  ],
  [
    "/vaults",
    async (page) => {
      await tabTo(page, "Add subscription");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      // More presses than the form has controls, to check that the focus stays in it.
      for (let step = 0; step < 8; step++) {
        await page.keyboard.press("Tab");
        expect(await page.evaluate("document.activeElement.closest('[role=dialog]') !== null")).toBe(true);
      }
      await page.keyboard.press("Escape");
      await expect.poll(async () => (await focused(page)).text).toBe("Add subscription");
      await tabTo(page, "Only vaults with access problems");
      await page.keyboard.press("Space");
      await waitForAddress(page, "failing=true");
    },
  ],
  [
    "/compliance",
    async (page) => {
      await tabTo(page, /^PCI DSS/);
      await page.keyboard.press("Enter");
      await page.getByRole("link", { name: "Show violations" }).waitFor();
      await tabTo(page, /is still enabled/);
      await page.keyboard.press("Enter");
      await page.getByText("Azure CLI").first().waitFor();
    },
  ],
  [
    "/compliance/readiness",
    async (page) => {
      await tabTo(page, /^State/);
      // Typing in a select chooses the option with this text.
      await page.keyboard.type("Ready or unknown");
      await waitForAddress(page, "failing=false");
      await tabTo(page, "Clear filters");
      await page.keyboard.press("Enter");
      await follow(page, "kv-certificates/imported", "imported");
    },
  ],
  [
    "/compliance/post-quantum",
    async (page) => {
      await tabTo(page, /^Type/);
      await page.keyboard.type("Keys");
      await waitForAddress(page, "type=key");
      await tabTo(page, "Clear filters");
      await page.keyboard.press("Enter");
      await follow(page, "kv-certificates/imported", "imported");
    },
  ],
  ["/proposals", async (page) => await follow(page, "API tokens", "Access")],
  [
    "/audit",
    async (page) => {
      await tabTo(page, "Verify audit log");
      await page.keyboard.press("Enter");
      await page.getByText(/The audit log is intact|The audit log can't be verified/).waitFor();
      await page.getByRole("list", { name: "Digest chain" }).waitFor();
    },
  ],
  [
    "/inventory/:assetId",
    async (page) => {
      await follow(page, "All assets in kv-shop", "Inventory");
      await waitForAddress(page, "vault=kv-shop");
    },
  ],
  [
    "/alerts",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^Name/);
        await page.keyboard.type("By keyboard");
        await tabTo(page, /^Email addresses/);
        await page.keyboard.type("on-call@acme.example");
      };
      await sendForm(page, "Create rule", fill, "Create rule");
      await waitForClosedDialog(page);
      await page.getByRole("link", { name: "By keyboard" }).waitFor();
    },
  ],
  [
    "/alerts/history/:entryId",
    async (page) => {
      await sendForm(page, "Acknowledge all", fillNothing, "Acknowledge all");
      await waitForText(page, /^\d+ acknowledged/);
      await tabTo(page, "Close");
      await page.keyboard.press("Enter");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/alerts/rules/:ruleId",
    async (page) => {
      const openButton = /^(Acknowledge|Remove acknowledgment): /;
      await tabTo(page, openButton);
      // The form's button has the first part of this name: "Acknowledge" or "Remove acknowledgment".
      const [action] = (await focused(page)).text.split(":");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await tabTo(page, action!);
      await page.keyboard.press("Enter");
      await waitForClosedDialog(page);
      await waitUntilLoaded(page);
    },
  ],
  [
    "/credentials",
    async (page) => {
      await tabTo(page, "Expired or due in 30 days");
      await page.keyboard.press("Space");
      await waitForAddress(page, "due=30");
      await tabTo(page, "Clear filters");
      await page.keyboard.press("Enter");
      await tabTo(page, "Kind");
      await page.keyboard.press("Enter");
      await waitForAddress(page, "sort=kind");
      await follow(page, /stshop/, "stshop");
    },
  ],
  [
    "/credentials/:credentialId",
    async (page) => {
      await sendForm(page, /^Rotate key: /, fillNothing, "Preview rotation");
      await waitForText(page, "Key Vault secrets to update");
      await page.keyboard.press("Escape");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/rotation",
    async (page) => {
      await tabTo(page, /^Name contains/);
      await page.keyboard.type("none is called so");
      await page.keyboard.press("Enter");
      await waitForText(page, /^No applications match the filters/);
    },
  ],
  ["/rotation/:rotationId", (page) => follow(page, "All applications and rotations", "Rotation")],
  [
    "/rotation/apps/:appId",
    async (page) => {
      await sendForm(page, /^(Set|Edit) policy/, fillNothing, "Save policy");
      await waitForClosedDialog(page);
      await waitForText(page, /Overlap period: \d+ days/);
    },
  ],
  [
    "/sync",
    async (page) => {
      await tabTo(page, /^Status/);
      // The test browser finds an option only by its exact case, because it has no data to compare letters of different case.
      // `Disabled` is the label of the state `paused`.
      await page.keyboard.type("Disabled");
      await waitForAddress(page, "state=paused");
      await waitForText(page, /^No syncs match the filter/);
    },
  ],
  [
    "/sync/:recordId",
    async (page) => {
      await sendForm(page, "Sync now", fillNothing, "Preview sync");
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Sync now", exact: true }).waitFor();
      await tabTo(page, "Sync now");
      await page.keyboard.press("Enter");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/dependencies",
    async (page) => {
      await tabTo(page, /^Effect of a new version/);
      await page.keyboard.press("ArrowDown");
      await waitForAddress(page, "refresh=automatic");
    },
  ],
  [
    "/dependencies/:assetId",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^Source of the new value/);
        // The last option generates a random value.
        await page.keyboard.press("End");
        await tabTo(page, /^I confirm that any value/);
        await page.keyboard.press("Space");
      };
      await sendForm(page, /^Rotate secret: /, fill, "Preview rotation");
      await waitForText(page, "Key Vault secrets to update");
      await page.keyboard.press("Escape");
      await waitForClosedDialog(page);
    },
  ],
  ["/b2c", (page) => follow(page, MARKUP, MARKUP)],
  [
    "/b2c/:tenantId",
    async (page) => {
      await tabTo(page, /^Edit/);
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await page.keyboard.press("Escape");
      await waitForClosedDialog(page);
      await follow(page, "All tenants", "B2C tenants");
    },
  ],
  [
    "/devops",
    async (page) => {
      await sendForm(page, "Select projects", fillNothing, "Save projects");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/access",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^Name/);
        await page.keyboard.type("By keyboard");
      };
      await sendForm(page, "Create token", fill, "Create token");
      await waitForText(page, "Copy the token now: it is shown only once.");
      await page.keyboard.press("Escape");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/sso",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await waitForText(page, "Copied");
      await sendForm(page, "Edit user access", fillNothing, "Save user access");
      await waitForClosedDialog(page);
    },
  ],
  [
    "/permissions",
    async (page) => {
      await sendForm(page, "Check permissions", fillNothing, "Check permissions");
      await waitForClosedDialog(page);
      await waitForText(page, /that is needed/);
      await page.getByRole("heading", { name: "Needs attention" }).waitFor();
    },
  ],
  [
    "/settings",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /days/i);
        await page.keyboard.press("ControlOrMeta+a");
        // Another value than the 80 days of the seed data.
        await page.keyboard.type("81");
      };
      await sendForm(page, "Edit: Scan history retention", fill, "Save setting");
      await waitForClosedDialog(page);
      await waitForText(page, "scanRetentionDays");
      await expect.poll(() => page.getByRole("main").textContent()).toContain("Scan history retention: 81 days");
    },
  ],
  [
    "/license",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await waitForText(page, "Copied");
    },
  ],
];

/** Returns an address that matches a path of `views.ts`, for example `/sync/1` for `/sync/:recordId`. */
const addressOf = (path: string): string => {
  const fits = new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`);
  return addresses().find((address) => fits.test(address) && !(path.includes(":") && address === path))!;
};

/** A normal run tests the overview and a sample of the other views, a campaign all views. */
withSeedData(
  "each view can be used by keyboard alone",
  async () => {
    expect(MAIN_TASKS.map(([path]) => path).sort()).toEqual(permissions.routes.map(({ path }) => path).sort());
    await context.grantPermissions(["clipboard-write", "clipboard-read"]);
    const { page, browserErrors } = await visitLoadedPage("/");
    // After a reload, Tab starts at the top of the page. Otherwise it continues from the element that a view focused.
    await page.reload();
    const [overview, ...others] = MAIN_TASKS;
    for (const [path, work] of [overview!, ...sampled(others, 3)]) {
      await showView(page, addressOf(path));
      await waitForSpinners(page, path);
      await waitUntilLoaded(page);
      const result = await work(page).then(() => "done", String);
      expect.soft([path, result]).toEqual([path, "done"]);
      expect.soft([path, browserErrors.splice(0)]).toEqual([path, []]);
      if (result !== "done") await page.keyboard.press("Escape");
    }
  },
  LONG_MS,
);

/**
 * Returns the names of all visible and enabled elements that can have the focus. Groups with arrow-key navigation, such as the
 * bars of a chart, are excluded.
 */
const focusable = (page: Page, part: string) =>
  page.locator(part).evaluate((root) =>
    [...root.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, [tabindex='0']")]
      .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.matches(":disabled, [data-tabster-dummy]"))
      .filter((one) => one.closest("[data-tabster*=mover]") === null)
      .map((one) => one.id || String(one.getAttribute("aria-label") ?? one.textContent).trim()),
  );

withSeedData(
  "Tab reaches every control of each view and dialog, and a closed dialog returns the focus",
  async () => {
    const { page, browserErrors } = await visitLoadedPage("/#/license");
    const testedOperations = new Set<string>();
    // Every row has a link, so the full inventory would have thousands of tab stops.
    const shortViews = addresses().map((view) => (view === "/inventory" ? "/inventory?vault=kv-shop" : view));
    for (const view of sampled(shortViews, 2)) {
      await showView(page, view);
      await waitForSpinners(page, view);
      await waitUntilLoaded(page);
      const inView = await focusable(page, "main");
      await page.evaluate("document.querySelector('main').focus()");
      const reachedInView = await tabThrough(page, "main");
      expect.soft([view, inView.filter((name) => !reachedInView.includes(name))]).toEqual([view, []]);
      for (const operation of await operationsOf(page)) {
        if (testedOperations.has(operation)) continue;
        testedOperations.add(operation);
        const button = page.locator(`[data-operation=${operation}]`).first();
        await button.focus();
        await page.keyboard.press("Enter");
        await page.getByRole("dialog").waitFor();
        await waitUntilLoaded(page);
        const inDialog = await focusable(page, "[role=dialog]");
        // Some presses more than the dialog has controls, to check that the focus stays in the dialog.
        const reachedInDialog = await tabThrough(page, "[role=dialog]", inDialog.length + 4);
        expect.soft([operation, inDialog.filter((name) => !reachedInDialog.includes(name))]).toEqual([operation, []]);
        await page.keyboard.press("Escape");
        await waitForClosedDialog(page);
        await expect
          .poll(() => button.evaluate((one) => one === document.activeElement), { message: operation })
          .toBe(true);
      }
    }
    expect(browserErrors).toEqual([]);
  },
  LONG_MS,
);

/**
 * Presses Tab until the focus leaves the element that the selector `part` matches. Each focused element must show the focus.
 *
 * @param steps - Number of key presses, for a dialog. The focus must not leave the dialog.
 * @returns The names of the elements that had the focus.
 */
async function tabThrough(page: Page, part: string, steps?: number): Promise<string[]> {
  const reached: string[] = [];
  for (let step = 0; step < (steps ?? 1_000); step++) {
    await page.keyboard.press("Tab");
    const { id, isWithin, isFocusVisible } = await focused(page, part);
    if (steps !== undefined) expect(isWithin, `the focus on ${id}`).toBe(true);
    if (!isWithin) break;
    expect(isFocusVisible, `the focus on ${id}`).toBe(true);
    reached.push(id);
  }
  return reached;
}
