import { expect } from "vitest";
import { context, signIn, visitLoadedPage, withBrowser } from "./fixture.ts";

withBrowser("after a session expires, the page asks to sign in and returns to the same view", async () => {
  const { page } = await visitLoadedPage("/#/inventory?type=key");
  await page.getByRole("row").nth(1).waitFor();
  await context.clearCookies();
  await page.getByLabel("Status").selectOption("healthy");
  await signIn(page);
  // The view stays mounted behind the sign-in form.
  await page.getByLabel("Username").waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Inventory" }).waitFor();
  expect(new URL(page.url()).hash).toContain("type=key");
});

withBrowser("a form keeps its input when the session expires", async () => {
  const { page } = await visitLoadedPage("/#/vaults");
  await page.getByRole("button", { name: "Add subscription" }).click();
  await page.getByLabel("Subscription ID").fill("none");
  const name = page.locator("input[name=name]");
  await name.fill("Typed before");
  await context.clearCookies();
  await page.getByRole("dialog").getByRole("button", { name: "Add subscription" }).click();
  await page.getByText("Your session has expired").waitFor();
  await signIn(page);
  await expect.poll(() => page.getByText("Your session has expired").count()).toBe(0);
  expect(await name.inputValue()).toBe("Typed before");
  // The request reaches the API now, which rejects the id.
  await page.getByRole("dialog").getByRole("button", { name: "Add subscription" }).click();
  await page.getByText("Check the highlighted fields").waitFor();
});
