import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type BrowserContext, chromium } from "playwright-core";
import { chromiumPath } from "./tools.ts";

/** A browser with a profile of its own, which goes with it. @throws {Error} when there is no browser. */
export async function openBrowser(): Promise<BrowserContext> {
  const executablePath = chromiumPath();
  if (!executablePath) throw new Error("Chromium was not found; set CHROMIUM_PATH or install it.");
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
