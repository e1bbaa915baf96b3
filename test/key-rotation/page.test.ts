import type { BrowserContext } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { ADMIN } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { companyWith, diskEncryptionSet, type KeyRotationWorld, openKeyRotationWorld, storage } from "./world.ts";

// Tests in a browser of the rotation of a key on the key's own page: the plan before the act, the steps, and the consumers.

const isWithoutBrowser = skipWithout("browser");
let world: KeyRotationWorld;
let context: BrowserContext;
beforeAll(async () => {
  if (isWithoutBrowser) return;
  const company = companyWith(
    [{ name: "data" }],
    [storage("stpinned", "data", true), diskEncryptionSet("des", "data")],
  );
  [world, context] = await Promise.all([openKeyRotationWorld(company), openBrowser()]);
}, 300_000);
afterAll(async () => {
  await context?.close();
  await world?.stop();
});

test.skipIf(isWithoutBrowser)(
  "a person sees the plan, rotates the key, and follows its consumers",
  async () => {
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(`${world.service.url}/#/inventory/${encodeURIComponent(world.idOf("data"))}`);
    await page.getByLabel("Username").fill(ADMIN.username);
    await page.getByLabel("Password").fill(ADMIN.password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();

    await page.getByRole("button", { name: "Rotate key" }).click();
    const dialog = page.getByRole("dialog");
    // The key can't be rotated before its plan was shown.
    expect(await dialog.getByRole("button", { name: "Rotate key" }).count()).toBe(0);
    await dialog.getByRole("button", { name: "Preview rotation" }).click();
    await dialog.getByText("pinned to a version, so you update it with a command").waitFor();
    await dialog.getByText("uses the new version by itself within 1 h").waitFor();
    expect(world.versions("data")).toHaveLength(1);
    await dialog.getByRole("button", { name: "Rotate key" }).click();

    await page.getByRole("list", { name: "Steps of the rotation" }).getByText("A version of data was added").waitFor();
    const { body } = await world.admin("GET", "/api/automation/keys/rotations");
    // The set follows at once, so that the clock moves by minutes only and the person stays signed in.
    world.control.consumers.delayNewKeyVersions(world.control.consumers.idOf("des"), 0);
    await world.waitUntil(body.items[0].runId, ({ consumers }) =>
      consumers.some(({ state }: { state: string }) => state === "followed"),
    );
    await page.reload();
    const consumers = page.getByRole("table", { name: "Consumers of the key" });
    await consumers.getByText("new version", { exact: true }).waitFor();
    await consumers.getByText("pinned to a version", { exact: true }).waitFor();
    await consumers.getByText("az storage account update").waitFor();
    expect(world.versions("data")).toHaveLength(2);
  },
  240_000,
);
