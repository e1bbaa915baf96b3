/** Visual checks of a view: accessibility (with the tool axe), nothing wider than the screen, and screenshots. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** The rules of axe that are checked: WCAG 2.0 to 2.2, levels A and AA, and the best practices. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** `PAGE_PICTURES=folder npx vitest run test/page` stores a screenshot of each view. */
const PICTURES = process.env.PAGE_PICTURES;

/** Returns the accessibility violations that axe finds, one per line. */
async function accessibilityViolations(page: Page): Promise<string[]> {
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(AXE);
  return await page.evaluate(async (tags) => {
    // biome-ignore lint/suspicious/noExplicitAny: axe is in the page, not in this program
    const { violations } = await (globalThis as any).axe.run(
      // Fluent UI's Tabster traps the focus in menus with invisible elements, which axe reports as hidden content.
      // Content behind an open dialog is inert, so only the dialog is checked.
      {
        ...(document.querySelector("[role=dialog]") && { include: [["[role=dialog]"]] }),
        exclude: [["[data-tabster-dummy]"]],
      },
      // Only violations: axe is faster if it does not report passed rules.
      { runOnly: tags, resultTypes: ["violations"] },
    );
    // biome-ignore lint/suspicious/noExplicitAny: as above
    return violations.map((one: any) => `${one.id}: ${one.nodes.map((node: any) => node.html).join(" | ")}`);
  }, RULES);
}

/** Looks: each is a theme and a screen width in pixels. These four cover both themes on narrow and wide screens. */
export const ALL_LOOKS = [
  ["light", 360],
  ["dark", 1440],
  ["dark", 360],
  ["light", 1440],
] as const;

/** The narrowest width that WCAG 2.2 requires (1.4.10), and the width of a 4K screen. */
export const EXTREMES = [
  ["dark", 320],
  ["light", 3840],
] as const;

/** Both themes on all supported widths, from the narrowest to the widest. */
export const EVERY_LOOK = [...ALL_LOOKS, ...EXTREMES, ["light", 320], ["dark", 3840]] as const;

/** A script that returns whether an open form is wider than its dialog. */
const IS_FORM_CUT = `[...document.querySelectorAll("[role=dialog] .fui-DialogContent")].some((one) => one.scrollWidth > one.clientWidth)`;

/** A script that returns whether the document is taller than the screen, so that an empty area follows the view. */
const IS_TOO_TALL = `document.querySelector("#main") !== null && document.documentElement.scrollHeight > innerHeight`;

type Look = readonly ["light" | "dark", number];

/** Sets the theme and the width in pixels. */
export async function setLook(page: Page, [theme, width]: Look): Promise<void> {
  await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
  await page.setViewportSize({ width, height: width > 3000 ? 2160 : 900 });
  await page.waitForFunction(
    ([isDark, wide]) => innerWidth === wide && matchMedia("(prefers-color-scheme: dark)").matches === isDark,
    [theme === "dark", width] as const,
  );
  await waitForRendering(page);
}

/** Resolves when the browser has rendered pending changes. */
const waitForRendering = (page: Page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/**
 * Time after which a problem counts as permanent. Charts and lists adapt to a new size some frames later, and more slowly on a
 * busy machine.
 */
const PERMANENT_AFTER_MS = 20_000;

/** Returns visual problems that don't disappear. */
async function permanentProblems(page: Page, width: number): Promise<string[]> {
  for (const deadline = Date.now() + PERMANENT_AFTER_MS; ; await waitForRendering(page)) {
    const problems = await accessibilityViolations(page);
    if ((await page.evaluate<number>("document.documentElement.scrollWidth")) > width) problems.push("too wide");
    if (await page.evaluate<boolean>(IS_TOO_TALL)) problems.push("the document scrolls, not only the view");
    if (await page.evaluate<boolean>(IS_FORM_CUT)) problems.push("the form is cut off at its side");
    if (problems.length === 0 || Date.now() > deadline) return problems;
  }
}

let lookIndex = SEED;
/**
 * Returns the looks to check. Each call returns the next look, so that a run covers all of them. A campaign or a run with
 * screenshots checks all looks each time.
 */
const nextLooks = () => (IS_CAMPAIGN || PICTURES ? ALL_LOOKS : [ALL_LOOKS[lookIndex++ % ALL_LOOKS.length]!]);

/**
 * Expects no accessibility violation and nothing wider than the screen.
 *
 * @param view - The name of the view in messages and in file names of screenshots.
 */
export async function expectNoVisualProblems(
  page: Page,
  view: string,
  looks: readonly Look[] = nextLooks(),
): Promise<void> {
  const problemsByLook: Record<string, string[]> = {};
  for (const [theme, width] of looks) {
    await setLook(page, [theme, width]);
    const problems = await permanentProblems(page, width);
    if (PICTURES) await page.screenshot({ path: path.join(PICTURES, `${view}-${theme}-${width}.png`) });
    if (problems.length > 0) problemsByLook[`${view}, ${theme}, ${width} px`] = problems;
  }
  expect.soft(problemsByLook).toEqual({});
}
