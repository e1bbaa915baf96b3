import { freePort } from "functions-host/test/run-host.ts";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers, servicesOf } from "../support/users.ts";
import { addVirtualAuthenticator } from "../support/virtual-authenticator.ts";

// Two protections of sensitive requests in a real browser. Step-up: the user confirms with a second factor. Approval: another
// administrator decides. The passkey is one of Chromium's virtual authenticator.

const withBrowser = test.skipIf(skipWithout("browser"));
const PASSWORD = "seven green bicycles uphill";

let service: Service;
let context: BrowserContext;
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://localhost:${port}`;
  service = await Service.start({ hosts: 0, env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: url } });
  [context] = await Promise.all([openBrowser(), service.addHost({}, ["--port", String(port)])]);
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});

/** Turns the two protections on or off as the command line does, without a confirmation. */
const setProtections = async (requireStepUp: boolean, requireApproval: boolean) => {
  const { settings } = await servicesOf(service);
  await settings.update("features", { requireStepUp, requireApproval }, { actor: "system", requestId: "test" });
};
afterEach(() => setProtections(false, false));

let sequence = 0;
async function createAdministrator(): Promise<string> {
  const username = `administrator${++sequence}`;
  await createUsers(service, [{ username, password: PASSWORD, role: "admin" }]);
  return username;
}

async function openAs(page: Page, username: string): Promise<void> {
  await context.clearCookies();
  await page.goto(`${url}/#/access`);
  await page.reload();
  await page.getByLabel("Username").fill(username);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Your second factors" }).waitFor();
}

async function createToken(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "Create token" }).first().click();
  const form = page.getByRole("dialog", { name: "Create token" });
  await form.getByLabel("Name").fill(name);
  await form.getByRole("button", { name: "Create token" }).click();
}

withBrowser("a user confirms with a passkey, and the page sends the request again", async () => {
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await addVirtualAuthenticator(page);
  await openAs(page, await createAdministrator());
  await page.getByRole("button", { name: "Add passkey" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Test laptop");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Create passkey" }).click();
  await dialog.getByText("Save these recovery codes now").waitFor();
  const codes = (await dialog.locator("pre").textContent())!.split("\n");
  await dialog.getByRole("button", { name: "Close" }).click();
  await setProtections(true, false);

  await createToken(page, "Nightly export");
  const confirmation = page.getByRole("alertdialog", { name: "Confirm your identity" });
  await confirmation.getByRole("button", { name: "Use a recovery code" }).click();
  await confirmation.getByLabel("Recovery code").fill("0000-0000-0000-0000");
  await confirmation.getByRole("button", { name: "Verify" }).click();
  await confirmation.getByText("The second factor is wrong").first().waitFor();
  expect(codes).toHaveLength(10);
  await confirmation.getByRole("button", { name: "Use another method" }).click();
  await confirmation.getByRole("button", { name: "Use a passkey" }).click();
  await page.getByText("Copy the token now").waitFor();
  await confirmation.waitFor({ state: "detached" });
  await page.close();
});

withBrowser("another administrator approves a request, which its requester then sends again", async () => {
  const [requester, approver] = [await createAdministrator(), await createAdministrator()];
  await setProtections(false, true);
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await openAs(page, requester);
  await createToken(page, "Approved token");
  await page.getByText("Another administrator must approve this").first().waitFor();

  await openAs(page, approver);
  await page.goto(`${url}/#/`);
  await page.getByRole("link", { name: "Review 1 request" }).click();
  await page.getByRole("button", { name: "Approve: Create an API token" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Approved token").waitFor();
  await dialog.getByRole("button", { name: "Approve request" }).click();
  await page.getByText(`Approved, not used yet (${approver})`).waitFor();

  await openAs(page, requester);
  await createToken(page, "Approved token");
  await page.getByText("Copy the token now").waitFor();
  await page.close();
});

withBrowser(
  "an approver sees markup as text, and characters that could hide or reorder text by their codes",
  async () => {
    const [requester, approver] = [await createAdministrator(), await createAdministrator()];
    await setProtections(false, true);
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    await openAs(page, requester);
    const record = {
      sourceVault: "kv-payments-prod",
      sourceSecret: "stripe-api-key",
      targetProvider: "aws",
      targetService: "secretsmanager",
      targetName: "<img src=x onerror=alert(1)>\u202eterces",
    };
    const status = await page.evaluate(async (body) => {
      const headers = { "Content-Type": "application/json" };
      const request = { method: "POST", headers, body: JSON.stringify(body) };
      return (await fetch("/api/automation/sync/records", request)).status;
    }, record);
    expect(status).toBe(403);
    await openAs(page, approver);
    await page.getByRole("button", { name: "Approve: Create a sync record" }).first().click();
    await page.getByRole("dialog").getByText("<img src=x onerror=alert(1)>\\u{202e}terces").waitFor();
    expect(await page.locator("img[src=x]").count()).toBe(0);
    await page.close();
  },
);
