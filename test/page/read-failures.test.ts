/** How the page shows subscriptions that can't be read. In this company, every vault that is found can be read. */
import type { BrowserContext, Page } from "playwright-core";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";

const isWithoutBrowser = skipWithout("browser");
const withBrowser = test.skipIf(isWithoutBrowser);
const FINANCE = "c1111111-1111-4111-8111-111111111111";
const secrets = [{ name: "db", expiresInDays: 200 }];
const company: Company = {
  subscriptions: [
    { name: "Acme Production", vaults: [{ name: "kv-shop", secrets }] },
    { name: "Acme Finance", id: FINANCE, vaults: [{ name: "kv-ledger", secrets }] },
  ],
};

let service: Service;
let context: BrowserContext;
let page: Page;
beforeAll(async () => {
  if (isWithoutBrowser) return;
  [service, context] = await Promise.all([Service.start({ company, shortWaits: true }), openBrowser()]);
  page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(service.url);
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});
afterEach(() => service.cloud.control.clearFaults());

/** Returns the text of the overview after all data is loaded. */
async function overview(): Promise<string> {
  await page.goto(`${service.url}/#/`);
  await page.reload();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await expect.poll(() => page.locator("main [role=progressbar]").count()).toBe(0);
  return await page.locator("main").innerText();
}
const ALL_CLEAR = /All subscriptions and vaults were read/;
/** Matches any wording of the notice. */
const ALL = /\ball (?:can be|was|were|subscriptions)\b/i;
const unread = () => page.getByRole("list", { name: "Subscriptions that could not be read" }).getByRole("listitem");
const denied = (operation: string, subscription?: string) =>
  service.cloud.control.addFault({
    match: { operation, ...(subscription !== undefined && { subscription }) },
    action: { kind: "deny" },
  });
const scan = (request: object = {}) => service.scan({ mode: "force", ...request });

withBrowser("before the first scan nothing is said to have been read", async () => {
  const text = await overview();
  expect(text).toContain("Unknown: no scan of all subscriptions has finished yet.");
  expect(text).not.toMatch(ALL_CLEAR);
});

withBrowser(
  "a subscription that can't be read is named with the reason and the role, though every vault was read",
  async () => {
    denied("arm.listVaults", FINANCE);
    expect(await scan()).toMatchObject({ status: "partial", progress: { vaultsTotal: 1, vaultsFailed: 0 } });
    const text = await overview();
    expect(text).not.toMatch(ALL);
    const [item] = await unread().allInnerTexts();
    expect(item).toMatch(/^Subscription Acme Finance: Could not list vaults /);
    expect(item).toContain("the custom role Credential Lifecycle Inventory Reader on the subscription");
    expect(text).toMatch(
      /Could not read 1 of 2 subscriptions: \S?Acme Finance\S?\.\s+Completed, but some subscriptions/,
    );

    await unread().getByRole("link", { name: "Acme Finance" }).click();
    await page.getByRole("heading", { name: "Vaults and subscriptions", level: 1 }).waitFor();
    const subscriptions = page.getByRole("table", { name: "Subscriptions" });
    await subscriptions.getByText(FINANCE).first().waitFor();
    expect(await subscriptions.innerText()).not.toContain("Acme Production");
    const only = page.getByRole("checkbox", { name: "Only vaults with access problems" });
    await only.check();
    expect(new URL(page.url()).hash).toBe("#/vaults?unread=true&failing=true");
    await page.getByText("No known vault failed at its last scan.").waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(ALL);
  },
);

withBrowser("subscriptions stand before vaults", async () => {
  denied("arm.listVaults", FINANCE);
  service.cloud.control.addFault({ match: { vault: "kv-shop" }, action: { kind: "deny" } });
  await scan();
  const text = await overview();
  expect(text).toContain("Vault kv-shop: ");
  expect(text.indexOf("Subscription Acme Finance: ")).toBeLessThan(text.indexOf("Vault kv-shop: "));
});

withBrowser("all is said to have been read only after a scan of everything that read everything", async () => {
  expect((await scan()).status).toBe("completed");
  expect(await overview()).toMatch(ALL_CLEAR);

  denied("arm.diagnosticSettings");
  expect((await scan()).status).toBe("partial");
  const partial = await overview();
  expect(partial).toContain("The last scan of all subscriptions ended as partial, so it did not read everything.");
  expect(partial).not.toMatch(ALL_CLEAR);
});

withBrowser("a list of subscriptions that can't be read is named, also after a scan of one subscription", async () => {
  denied("arm.listSubscriptions");
  expect((await scan()).status).toBe("failed");
  expect((await scan({ subscriptions: [FINANCE] })).status).toBe("completed");
  expect(await overview()).not.toMatch(ALL);
  const [item] = await unread().allInnerTexts();
  expect(item).toMatch(/^The list of subscriptions: Could not list subscriptions /);
  expect(item).toContain("the custom role Credential Lifecycle Inventory Reader on the subscription");
});
