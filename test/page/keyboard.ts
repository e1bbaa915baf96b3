import type { Page } from "playwright-core";
import { expect } from "vitest";
import { LONG_MS, sampled } from "../support/cases.ts";
import { addresses, context, isDrawn, isLoaded, offers, operationsOf, show, visit, withPlanted } from "./opened.ts";
import { MARKUP } from "./planted.ts";

/** What has the focus, by its words; whether a person sees that it has; and its place, for a walk through a part of the page. */
const focused = (page: Page, part = "body") =>
  page.evaluate((selector) => {
    // biome-ignore lint/suspicious/noExplicitAny: the page's own document, which this program has not
    const { document, getComputedStyle } = globalThis as any;
    const element = document.activeElement;
    const isSeen = [element, element.parentElement].some((one) =>
      [undefined, "::after"].some((part) => {
        const { outlineStyle, boxShadow, borderBottomWidth, textDecorationStyle } = getComputedStyle(one, part);
        // A ring, a thicker line under a field, two lines under a link.
        if (outlineStyle !== "none" || boxShadow !== "none") return true;
        return Number.parseFloat(borderBottomWidth) > 1 || textDecorationStyle === "double";
      }),
    );
    const label = element.labels?.[0]?.textContent;
    const words = (named: unknown) => String(element.getAttribute("aria-label") ?? named ?? element.textContent).trim();
    const isWithin: boolean = element.closest(selector) !== null;
    return { text: words(label), isSeen, id: String(element.id || words(undefined)), isWithin };
  }, part);

/** Goes on by the Tab key until something has the focus that is called so. */
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

/** Opens the form of a button, does something in it, and sends it. */
async function sendForm(page: Page, button: string | RegExp, fill: () => Promise<void>, action: string): Promise<void> {
  await tabTo(page, button);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await fill();
  await tabTo(page, action);
  await page.keyboard.press("Enter");
}

const says = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
const isClosed = (page: Page) => page.getByRole("dialog").waitFor({ state: "detached" });
const nothing = async () => {};
const isAt = (page: Page, part: string) => expect.poll(() => new URL(page.url()).hash).toContain(part);

/** A link that is followed. */
async function follow(page: Page, link: string | RegExp, heading: string): Promise<void> {
  await tabTo(page, link);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

/** What each view is for, done with no mouse. By the view's path as `views.ts` has it. */
const BY_KEYBOARD: [string, (page: Page) => Promise<void>][] = [
  [
    "/",
    async (page) => {
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press("Tab");
      expect((await focused(page)).text).toBe("To the content");
      await page.keyboard.press("Enter");
      expect(await page.evaluate("document.activeElement.id")).toBe("main");
      // From what ends next to the asset, and on by the navigation, whose links are walked by the arrows.
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
      await page.getByRole("checkbox", { name: "Changed" }).waitFor();
      await page.keyboard.press("Escape");
      await expect.poll(async () => (await focused(page)).text).toBe("Columns");
      await tabTo(page, "smtp");
    },
  ],
  [
    "/vaults",
    async (page) => {
      await tabTo(page, "Add a subscription");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      for (let step = 0; step < 8; step++) {
        await page.keyboard.press("Tab");
        expect(await page.evaluate("document.activeElement.closest('[role=dialog]') !== null")).toBe(true);
      }
      await page.keyboard.press("Escape");
      await expect.poll(async () => (await focused(page)).text).toBe("Add a subscription");
      await tabTo(page, "Only vaults that could not be read");
      await page.keyboard.press("Space");
      await isAt(page, "failing=true");
    },
  ],
  [
    "/compliance",
    async (page) => {
      await tabTo(page, /^PCI DSS/);
      await page.keyboard.press("Enter");
      await page.getByRole("link", { name: "What fails" }).waitFor();
      await tabTo(page, /has not expired/);
      await page.keyboard.press("Enter");
      await page.getByText("By the command line").first().waitFor();
    },
  ],
  [
    "/audit",
    async (page) => {
      await tabTo(page, "Verify the log");
      await page.keyboard.press("Enter");
      await page.getByText(/The log is whole|Nothing is sealed/).waitFor();
      await page.getByRole("list", { name: "The chain of digests" }).waitFor();
    },
  ],
  [
    "/inventory/:assetId",
    async (page) => {
      await follow(page, "All of kv-shop", "Inventory");
      await isAt(page, "vault=kv-shop");
    },
  ],
  [
    "/alerts",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^Name/);
        await page.keyboard.type("By keyboard");
        await tabTo(page, /^E-mail addresses/);
        await page.keyboard.type("on-call@acme.example");
      };
      await sendForm(page, "New rule", fill, "Create");
      await isClosed(page);
      await page.getByRole("link", { name: "By keyboard" }).waitFor();
    },
  ],
  [
    "/alerts/history/:entryId",
    async (page) => {
      await sendForm(page, "Acknowledge all of it", nothing, "Acknowledge");
      await says(page, /^\d+ acknowledged/);
      await tabTo(page, "Close");
      await page.keyboard.press("Enter");
      await isClosed(page);
    },
  ],
  [
    "/alerts/rules/:ruleId",
    async (page) => {
      const open = /^(Acknowledge|Take back): /;
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
      await tabTo(page, /^Part of the name/);
      await page.keyboard.type("none is called so");
      await page.keyboard.press("Enter");
      await says(page, "No application was found.");
    },
  ],
  ["/rotation/:rotationId", (page) => follow(page, "To the rotations", "Rotation")],
  [
    "/rotation/apps/:appId",
    async (page) => {
      await sendForm(page, /^(Set a|Change the) policy/, nothing, "Save");
      await isClosed(page);
      await says(page, /in which both secrets hold/);
    },
  ],
  [
    "/sync",
    async (page) => {
      await tabTo(page, /^State/);
      await page.keyboard.type("paused");
      await isAt(page, "state=paused");
      await says(page, "Nothing is copied.");
    },
  ],
  [
    "/sync/:recordId",
    async (page) => {
      await sendForm(page, "Copy now", nothing, "Show what would be done");
      await page.getByRole("button", { name: "Copy", exact: true }).waitFor();
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await isClosed(page);
    },
  ],
  [
    "/dependencies",
    async (page) => {
      await tabTo(page, /^On a new version/);
      await page.keyboard.press("ArrowDown");
      await isAt(page, "refresh=automatic");
    },
  ],
  [
    "/dependencies/:assetId",
    async (page) => {
      const fill = async () => {
        await tabTo(page, /^The new value/);
        await page.keyboard.press("End");
        await tabTo(page, /takes any/);
        await page.keyboard.press("Space");
      };
      await sendForm(page, /^Rotate: /, fill, "Show the plan");
      await says(page, "What would be done");
      await page.keyboard.press("Escape");
      await isClosed(page);
    },
  ],
  ["/b2c", (page) => follow(page, MARKUP, MARKUP)],
  [
    "/b2c/:tenantId",
    async (page) => {
      await tabTo(page, /^Change/);
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await page.keyboard.press("Escape");
      await isClosed(page);
      await follow(page, "To the tenants", "B2C tenants");
    },
  ],
  [
    "/devops",
    async (page) => {
      await sendForm(page, "Choose projects", nothing, "Save");
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
      await sendForm(page, "New token", fill, "Create");
      await says(page, "The token is shown only now.");
      await page.keyboard.press("Escape");
      await isClosed(page);
    },
  ],
  [
    "/sso",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await says(page, "Copied");
      await sendForm(page, "Change who comes in", nothing, "Save");
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
      await sendForm(page, "Change: scanRetentionDays", fill, "Change");
      await isClosed(page);
      await says(page, "scanRetentionDays");
      await expect.poll(() => page.getByRole("main").textContent()).toContain("scanRetentionDays: 81");
    },
  ],
  [
    "/license",
    async (page) => {
      await tabTo(page, "Copy");
      await page.keyboard.press("Enter");
      await says(page, "Copied");
    },
  ],
];

/** Where a path of `views.ts` leads. */
const addressOf = (path: string): string => {
  const fits = new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`);
  return addresses().find((address) => fits.test(address) && !(path.includes(":") && address === path))!;
};

/** In the suite the first, which others begin from, and some of the rest. */
withPlanted(
  "each view is used by the keyboard alone",
  async () => {
    expect(BY_KEYBOARD.map(([path]) => path).sort()).toEqual(offers.routes.map(({ path }) => path).sort());
    await context.grantPermissions(["clipboard-write", "clipboard-read"]);
    const { page, complaints } = await visit("/");
    // In a page that was just loaded, Tab begins at its beginning; later it goes on from where a view has put the focus.
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

/**
 * What may have the focus in a part of the page, by its words; what is not drawn or is switched off has none. Of a group, such as
 * the bars of a chart, one has it, and the arrows lead to the others.
 */
const focusable = (page: Page, part: string) =>
  page.locator(part).evaluate((root) =>
    [...root.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, [tabindex='0']")]
      .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.matches(":disabled, [data-tabster-dummy]"))
      .filter((one) => one.closest("[data-tabster*=mover]") === null)
      .map((one) => one.id || String(one.getAttribute("aria-label") ?? one.textContent).trim()),
  );

withPlanted(
  "the Tab key reaches all of each view and each dialog, which gives the focus back",
  async () => {
    const { page, complaints } = await visit("/#/license");
    const seen = new Set<string>();
    // Every row of a list has a link, and a list of all would have thousands.
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

/**
 * Goes on by the Tab key as long as the focus stays in a part of the page.
 *
 * @param steps - So many, all of which must stay in it, as in a dialog; else until it is left.
 * @returns what had the focus, each of which shows that.
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
