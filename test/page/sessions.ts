import { expect } from "vitest";
import { context, signIn, visit, withBrowser } from "./opened.ts";

withBrowser("a session that ended asks to sign in, and comes back to the same place", async () => {
  const { page } = await visit("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await context.clearCookies();
  await page.getByLabel("Status").selectOption("healthy");
  await signIn(page);
  // The view stands behind it all the while.
  await page.getByLabel("Username").waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Inventory" }).waitFor();
  expect(new URL(page.url()).hash).toContain("type=key");
});

withBrowser("a session that ended keeps what was typed", async () => {
  const { page } = await visit("/#/vaults");
  await page.getByRole("button", { name: "Add a subscription" }).click();
  await page.getByLabel("Subscription id").fill("none");
  const name = page.locator("input[name=name]");
  await name.fill("Typed before");
  await context.clearCookies();
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("Your session has ended").waitFor();
  await signIn(page);
  await expect.poll(() => page.getByText("Your session has ended").count()).toBe(0);
  expect(await name.inputValue()).toBe("Typed before");
  // Now it is heard: no subscription has such an id.
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("The request is invalid").waitFor();
});
