import { expect } from "vitest";
import { context, service, signIn, visitLoadedPage, withBrowser, withSeedData } from "./fixture.ts";
import { OTHER_USERS, PASSWORD } from "./seed-data.ts";

// Tests of expired sessions, and of the list of a user's sessions.

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

withSeedData("an administrator sees the sessions of another user and ends one", async () => {
  const [username] = OTHER_USERS;
  const body = { username, password: PASSWORD, session: true };
  const answer = await service.call("POST", "/auth/login", {
    body,
    headers: { Origin: service.url, "User-Agent": "A lost telephone" },
  });
  const cookie = answer.headers.getSetCookie()[0]!.split(";")[0]!;
  const sessionStatus = async () => (await service.call("GET", "/auth/me", { headers: { Cookie: cookie } })).status;
  expect(await sessionStatus()).toBe(200);
  const { page } = await visitLoadedPage("/#/access");
  const row = page.getByRole("row").filter({ has: page.getByText(/^user /) });
  await row.getByRole("link", { name: "Sessions" }).click();
  await page.getByRole("heading", { name: `Sessions of ${username}` }).waitFor();
  await page.getByRole("button", { name: "End session: A lost telephone" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End session", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  expect(await sessionStatus()).toBe(401);
});
