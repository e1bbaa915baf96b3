import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type BrowserContext, chromium } from "playwright-core";
import { resolveBrowser } from "./chromium.ts";

/**
 * Opens a browser with a new profile, which is deleted when the browser closes.
 *
 * @throws {Error} Where there is no browser.
 */
export async function openBrowser(): Promise<BrowserContext> {
  const { executablePath, environment } = await resolveBrowser();
  const profile = mkdtempSync(path.join(tmpdir(), "browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    env: environment as Record<string, string>,
    // A failure before the first test is not retried.
    timeout: 300_000,
    // Playwright waits until an element no longer moves before it clicks.
    reducedMotion: "reduce",
    // These options disable the browser's own requests to the internet.
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
  // The browser's processes may still write for a moment.
  context.once("close", () => rmSync(profile, { recursive: true, force: true, maxRetries: 20 }));
  return context;
}
