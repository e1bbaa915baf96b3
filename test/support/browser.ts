import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type BrowserContext, chromium } from "playwright-core";
import { test } from "vitest";

const executablePath = process.env.CHROMIUM_PATH ?? "/usr/bin/chromium";
const remedy = `No Chromium at ${executablePath}: install it, or name one in CHROMIUM_PATH`;

/**
 * `test` for what needs a browser. Where nobody reads what was skipped, a missing one is a failure; on a person's machine
 * it is skipped and said.
 *
 * @param what - What is skipped then, such as "the tests of /docs".
 */
export function browserTests(what: string) {
  const isMissing = !existsSync(executablePath);
  const isRequired = Boolean(process.env.CI || process.env.REQUIRE_BROWSER);
  if (isMissing && !isRequired) console.warn(`${remedy}. Skipped: ${what}.`);
  return test.skipIf(isMissing && !isRequired);
}

/** A browser with a profile of its own, which goes with it. @throws {Error} when there is no browser. */
export async function openBrowser(): Promise<BrowserContext> {
  if (!existsSync(executablePath)) throw new Error(remedy);
  const profile = mkdtempSync(path.join(tmpdir(), "browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    // Nobody tries again what fails before the first test.
    timeout: 300_000,
    // What moves is waited for before it is pressed.
    reducedMotion: "reduce",
    // The browser's own errands would leave the machine.
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  // Its processes may still write for a moment.
  context.once("close", () => rmSync(profile, { recursive: true, force: true, maxRetries: 20 }));
  return context;
}
