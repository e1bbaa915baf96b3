import { expect } from "vitest";
import { context, open, signIn, withBrowser } from "./opened.ts";

withBrowser("a session that ended asks to sign in, and comes back to the same place", async () => {
  const { page } = await open("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await context.clearCookies();
  await page.getByLabel("Status").selectOption("healthy");
  await signIn(page);
  // The view stands behind it all the while.
  await page.getByLabel("Username").waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Inventory" }).waitFor();
  expect(new URL(page.url()).hash).toContain("type=key");
  await page.close();
});

withBrowser("a session that ended keeps what was typed", async () => {
  const { page } = await open("/#/vaults");
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
  await page.close();
});

withBrowser("an answer of the version before, which says no tier, is asked for again until one does", async () => {
  const { page } = await open("/#/license");
  await page.clock.install();
  let [asked, isBefore] = [0, true];
  await page.route(/\/auth\/me$/, async (route) => {
    const response = await route.fetch();
    const { tier, ...before } = (await response.json()) as { tier: string };
    asked++;
    return route.fulfill({ response, json: isBefore ? before : { ...before, tier } });
  });
  await page.evaluate("location.hash = '#/sync'");
  await page.reload();
  await page.getByText("This needs a PRO licence").first().waitFor();
  isBefore = false;
  await page.clock.fastForward(20_000);
  await page.getByRole("button", { name: "New copy" }).waitFor();
  const times = asked;
  await page.clock.fastForward(60_000);
  expect([times > 1, asked]).toEqual([true, times]);
  await page.close();
});
