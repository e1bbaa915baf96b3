import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type BrowserContext, chromium } from "playwright-core";
import { resolveBrowser } from "./chromium.ts";

/**
 * Opens a headless browser for a test, with a new profile that is deleted when the browser closes.
 *
 * @throws {Error} If the machine has no browser.
 */
export async function openBrowser(): Promise<BrowserContext> {
  const { executablePath, environment } = await resolveBrowser();
  const profile = mkdtempSync(path.join(tmpdir(), "browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    env: environment as Record<string, string>,
    // Five minutes, because a busy machine starts a browser slowly and Vitest retries only tests, not their set-up.
    timeout: 300_000,
    // Without animations, Playwright need not wait until an element no longer moves before it clicks.
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
  // Retries, because the browser's processes may still write for a moment.
  context.once("close", () => rmSync(profile, { recursive: true, force: true, maxRetries: 20 }));
  return context;
}
