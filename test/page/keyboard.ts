import type { Page } from "playwright-core";
import { expect } from "vitest";
import { LONG_MS, sampled } from "../support/sampling.ts";
import { addresses, context, isDrawn, isLoaded, offers, operationsOf, show, visit, withPlanted } from "./fixture.ts";
import { MARKUP } from "./seed-data.ts";

/** Returns the focused element: its text, whether the focus is visible, its id, and whether it is inside `part`. */
const focused = (page: Page, part = "body") =>
  page.evaluate((selector) => {
    // biome-ignore lint/suspicious/noExplicitAny: the page's own document, which this program has not
    const { document, getComputedStyle } = globalThis as any;
    const element = document.activeElement;
    const isSeen = [element, element.parentElement].some((one) =>
      [undefined, "::after"].some((part) => {
        const { outlineStyle, boxShadow, borderBottomWidth, textDecorationStyle } = getComputedStyle(one, part);
        // Fluent UI shows the focus as an outline, a thicker field border, or a double underline.
        if (outlineStyle !== "none" || boxShadow !== "none") return true;
        return Number.parseFloat(borderBottomWidth) > 1 || textDecorationStyle === "double";
      }),
    );
    const label = element.labels?.[0]?.textContent;
    const words = (named: unknown) => String(element.getAttribute("aria-label") ?? named ?? element.textContent).trim();
    const isWithin: boolean = element.closest(selector) !== null;
    return { text: words(label), isSeen, id: String(element.id || words(undefined)), isWithin };
  }, part);

/** Presses Tab until an element with this name has the focus. */
async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  const passed: string[] = [];
  for (let step = 0; step < 80; step++) {
    await page.keyboard.press("Tab");
    const { text, isSeen } = await focused(page);
    passed.push(text);
    if (typeof name === "string" ? text !== name : !name.test(text)) continue;
    expect(isSeen, `the focus on ${text}`).toBe(true);
    return;
  }
  throw new Error(`The Tab key reaches no ${name}, but: ${passed.join(" | ")}`);
}

/** Opens a form, fills it in, and submits it. */
async function sendForm(page: Page, button: string | RegExp, fill: () => Promise<void>, action: string): Promise<void> {
  await tabTo(page, button);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await fill();
  await tabTo(page, action);
  await page.keyboard.press("Enter");
}

const shows = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
const isClosed = (page: Page) => page.getByRole("dialog").waitFor({ state: "detached" });
const nothing = async () => {};
const isAt = (page: Page, part: string) => expect.poll(() => new URL(page.url()).hash).toContain(part);

/** Follows a link and waits for the view's heading. */
async function follow(page: Page, link: string | RegExp, heading: string): Promise<void> {
  await tabTo(page, link);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

/** The main task of each view, done by keyboard. The key is the view's path in `views.ts`. */
const BY_KEYBOARD: [string, (page: Page) => Promise<void>][] = [
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
      await isLoaded(page);
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
    "/vaults",
    async (page) => {
      await tabTo(page, "Add subscription");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      for (let step = 0; step < 8; step++) {
        await page.keyboard.press("Tab");
        expect(await page.evaluate("document.activeElement.closest('[role=dialog]') !== null")).toBe(true);
      }
      await page.keyboard.press("Escape");
      await expect.poll(async () => (await focused(page)).text).toBe("Add subscription");
      await tabTo(page, "Only vaults with access problems");
      await page.keyboard.press("Space");
      await isAt(page, "failing=true");
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
      await isAt(page, "vault=kv-shop");
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
      await isClosed(page);
      await page.getByRole("link", { name: "By keyboard" }).waitFor();
    },
  ],
  [
    "/alerts/history/:entryId",
    async (page) => {
      await sendForm(page, "Acknowledge all", nothing, "Acknowledge");
      await shows(page, /^\d+ acknowledged/);
      await tabTo(page, "Close");
      await page.keyboard.press("Enter");
      await isClosed(page);
    },
  ],
  [
    "/alerts/rules/:ruleId",
    async (page) => {
      const open = /^(Acknowledge|Remove acknowledgment): /;
      await tabTo(page, open);
      const [what] = (await focused(page)).text.split(":");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await tabTo(page, what!);
      await page.keyboard.press("Enter");
      await isClosed(page);
      await isLoaded(page);
    },
  ],
  [
    "/rotation",
    async (page) => {
      await tabTo(page, /^Name contains/);
      await page.keyboard.type("none is called so");
      await page.keyboard.press("Enter");
      await shows(page, /^No applications match the filters/);
    },
  ],
  ["/rotation/:rotationId", (page) => follow(page, "All rotations", "Rotation")],
  [
    "/rotation/apps/:appId",
    async (page) => {
      await sendForm(page, /^(Set|Edit) policy/, nothing, "Save");
      await isClosed(page);
      await shows(page, /Overlap period: \d+ days/);
    },
  ],
  [
    "/sync",
    async (page) => {
      await tabTo(page, /^Status/);
      await page.keyboard.type("paused");
      await isAt(page, "state=paused");
      await shows(page, /^No sync records match the filters/);
    },
  ],
  [
    "/sync/:recordId",
    async (page) => {
      await sendForm(page, "Sync now", nothing, "Show plan");
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Sync now", exact: true }).waitFor();
      await tabTo(page, "Sync now");
      await page.keyboard.press("Enter");
      await isClosed(page);
    },
  ],
  [
    "/dependencies",
    async (page) => {
      await tabTo(page, /^After a new version/);
      await page.keyboard.press("ArrowDown");
      await isAt(page, "refresh=automatic");
    },
  ],
  [
    "/dependencies/:assetId",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^New value/);
        await page.keyboard.press("End");
        await tabTo(page, /^No other system/);
        await page.keyboard.press("Space");
      };
      await sendForm(page, /^Rotate secret: /, fill, "Show plan");
      await shows(page, "Vault secrets to write");
      await page.keyboard.press("Escape");
      await isClosed(page);
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
      await isClosed(page);
      await follow(page, "All tenants", "B2C tenants");
    },
  ],
  [
    "/devops",
    async (page) => {
      await sendForm(page, "Select projects", nothing, "Save");
      await isClosed(page);
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
      await shows(page, "Copy the token now: it is shown only once.");
      await page.keyboard.press("Escape");
      await isClosed(page);
    },
  ],
  [
    "/sso",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await shows(page, "Copied");
      await sendForm(page, "Edit user access", nothing, "Save");
      await isClosed(page);
    },
  ],
  [
    "/settings",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /days/i);
        await page.keyboard.press("ControlOrMeta+a");
        await page.keyboard.type("81");
      };
      await sendForm(page, "Edit: Scan history retention", fill, "Save");
      await isClosed(page);
      await shows(page, "scanRetentionDays");
      await expect.poll(() => page.getByRole("main").textContent()).toContain("Scan history retention: 81 days");
    },
  ],
  [
    "/license",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await shows(page, "Copied");
    },
  ],
];

/** Returns an address that matches a path of `views.ts`. */
const addressOf = (path: string): string => {
  const fits = new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`);
  return addresses().find((address) => fits.test(address) && !(path.includes(":") && address === path))!;
};

/** The suite runs the overview and a sample of the other views. */
withPlanted(
  "each view can be used by keyboard alone",
  async () => {
    expect(BY_KEYBOARD.map(([path]) => path).sort()).toEqual(offers.routes.map(({ path }) => path).sort());
    await context.grantPermissions(["clipboard-write", "clipboard-read"]);
    const { page, complaints } = await visit("/");
    // After a reload, Tab starts at the top of the page. Otherwise it continues from the element that a view focused.
    await page.reload();
    const [overview, ...others] = BY_KEYBOARD;
    for (const [path, work] of [overview!, ...sampled(others, 3)]) {
      await show(page, addressOf(path));
      await isDrawn(page, path);
      await isLoaded(page);
      const done = await work(page).then(() => "done", String);
      expect.soft([path, done]).toEqual([path, "done"]);
      expect.soft([path, complaints.splice(0)]).toEqual([path, []]);
      if (done !== "done") await page.keyboard.press("Escape");
    }
  },
  LONG_MS,
);

/** Returns the names of all visible and enabled elements that can have the focus. Groups with arrow-key navigation, such as the bars
 * of a chart, are excluded.
 */
const focusable = (page: Page, part: string) =>
  page.locator(part).evaluate((root) =>
    [...root.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, [tabindex='0']")]
      .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.matches(":disabled, [data-tabster-dummy]"))
      .filter((one) => one.closest("[data-tabster*=mover]") === null)
      .map((one) => one.id || String(one.getAttribute("aria-label") ?? one.textContent).trim()),
  );

withPlanted(
  "Tab reaches every control of each view and dialog, and a closed dialog returns the focus",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const seen = new Set<string>();
    // Every row has a link, so the full inventory would have thousands of tab stops.
    const few = addresses().map((view) => (view === "/inventory" ? "/inventory?vault=kv-shop" : view));
    for (const view of sampled(few, 2)) {
      await show(page, view);
      await isDrawn(page, view);
      await isLoaded(page);
      const all = await focusable(page, "main");
      await page.evaluate("document.querySelector('main').focus()");
      const reached = await tabThrough(page, "main");
      expect.soft([view, all.filter((one) => !reached.includes(one))]).toEqual([view, []]);
      for (const operation of await operationsOf(page)) {
        if (seen.has(operation)) continue;
        seen.add(operation);
        const button = page.locator(`[data-operation=${operation}]`).first();
        await button.focus();
        await page.keyboard.press("Enter");
        await page.getByRole("dialog").waitFor();
        await isLoaded(page);
        const inDialog = await focusable(page, "[role=dialog]");
        const reachedThere = await tabThrough(page, "[role=dialog]", inDialog.length + 4);
        expect.soft([operation, inDialog.filter((one) => !reachedThere.includes(one))]).toEqual([operation, []]);
        await page.keyboard.press("Escape");
        await isClosed(page);
        await expect
          .poll(() => button.evaluate((one) => one === document.activeElement), { message: operation })
          .toBe(true);
      }
    }
    expect(complaints).toEqual([]);
  },
  LONG_MS,
);

/** Presses Tab while the focus stays in `part`.
 *
 * @param steps - Number of key presses, all of which must keep the focus in `part`, as in a dialog. Default: until the focus leaves.
 * @returns the names of the elements that had the focus. Each must show the focus.
 */
async function tabThrough(page: Page, part: string, steps?: number): Promise<string[]> {
  const reached: string[] = [];
  for (let step = 0; step < (steps ?? 1_000); step++) {
    await page.keyboard.press("Tab");
    const { id, isWithin, isSeen } = await focused(page, part);
    if (steps !== undefined) expect(isWithin, `the focus on ${id}`).toBe(true);
    if (!isWithin) break;
    expect(isSeen, `the focus on ${id}`).toBe(true);
    reached.push(id);
  }
  return reached;
}
