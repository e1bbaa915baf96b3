/**
 * Tests of how the web page shows subscriptions and vaults that a scan could not read. They use a service and a company of their
 * own, with two subscriptions and one vault in each.
 */
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
async function readOverview(): Promise<string> {
  await page.goto(`${service.url}/#/`);
  await page.reload();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await expect.poll(() => page.locator("main [role=progressbar]").count()).toBe(0);
  return await page.locator("main").innerText();
}
const ALL_READ_NOTICE = /Everything was read\./;
/** Matches any claim that everything was read. */
const ALL_READ_CLAIM = /\ball (?:can be|was|were)\b|\beverything (?:can be|was)\b/i;
/** Returns the first line of the overview. */
const coverageLine = () => page.getByText(/^Coverage: /).innerText();
const unreadSubscriptions = () =>
  page.getByRole("list", { name: "Subscriptions that could not be read" }).getByRole("listitem");
const denyOperation = (operation: string, subscription?: string) =>
  service.cloud.control.addFault({
    match: { operation, ...(subscription !== undefined && { subscription }) },
    action: { kind: "deny" },
  });
const forceScan = (request: object = {}) => service.scan({ mode: "force", ...request });

withBrowser("before the first scan, the overview says that the result is unknown", async () => {
  const text = await readOverview();
  expect(text).toContain("No scan of all subscriptions has finished yet.");
  expect(text).not.toMatch(ALL_READ_CLAIM);
  expect(await coverageLine()).toBe("Coverage: unknown until the first scan has ended");
  // Neither a 0 nor a full score for what was not read.
  expect(text).toContain("No assets were read yet.");
  expect(text).toContain("Not evaluated yet.");
  expect(text).not.toMatch(/100 of 100|0 assets expired, /);
});

withBrowser("a subscription whose vaults can't be listed is named with the reason and the missing role", async () => {
  denyOperation("arm.listVaults", FINANCE);
  expect(await forceScan()).toMatchObject({ status: "partial", progress: { vaultsTotal: 1, vaultsFailed: 0 } });
  const text = await readOverview();
  expect(text).not.toMatch(ALL_READ_CLAIM);
  const [item] = await unreadSubscriptions().allInnerTexts();
  expect(item).toMatch(/^Subscription Acme Finance: Could not list vaults /);
  expect(item).toContain("the custom role Credential Lifecycle Inventory Reader on the subscription");
  expect(await coverageLine()).toBe("Coverage: 1 of 2 subscriptions, 1 of 1 known vault read.");
  expect(text).toContain("Completed, but some subscriptions or vaults could not be read.");
  // The coverage is the first line of the view, and the navigation counts its gaps.
  expect(text.split("\n").filter(Boolean)[1]).toMatch(/^Coverage: /);
  expect(text).toMatch(/^0 assets expired, 0 expire within 7 days$/m);
  expect(await page.getByRole("link", { name: "Vaults", exact: true }).getAttribute("title")).toBe(
    "1 gap in the coverage",
  );

  await unreadSubscriptions().getByRole("link", { name: "Acme Finance" }).click();
  await page.getByRole("heading", { name: "Vaults", level: 1 }).waitFor();
  const subscriptions = page.getByRole("table", { name: "Subscriptions" });
  await subscriptions.getByText(FINANCE).first().waitFor();
  expect(await subscriptions.innerText()).not.toContain("Acme Production");
  expect(await subscriptions.innerText()).toContain("Not read");
  // The other subscription has a state of its own, whatever the status of the whole scan is.
  const onlyUnread = page.getByRole("checkbox", { name: "Only subscriptions that could not be read" });
  await onlyUnread.uncheck();
  const production = subscriptions.getByRole("row", { name: "Acme Production" });
  expect(await production.innerText()).toContain("Assets read");
  await onlyUnread.check();
  const only = page.getByRole("checkbox", { name: "Only vaults with access problems" });
  await only.check();
  expect(new URL(page.url()).hash).toBe("#/vaults?unread=true&failing=true");
  await page.getByText("The last scans could read all known vaults.").waitFor();
  expect(await page.locator("main").innerText()).not.toMatch(ALL_READ_CLAIM);
});

withBrowser("the overview lists unread subscriptions before unread vaults", async () => {
  denyOperation("arm.listVaults", FINANCE);
  service.cloud.control.addFault({ match: { vault: "kv-shop" }, action: { kind: "deny" } });
  await forceScan();
  const text = await readOverview();
  expect(text).toContain("Vault kv-shop: ");
  expect(text.indexOf("Subscription Acme Finance: ")).toBeLessThan(text.indexOf("Vault kv-shop: "));
  expect(await coverageLine()).toBe("Coverage: 1 of 2 subscriptions, 0 of 1 known vault read.");

  await page.goto(`${service.url}/#/vaults`);
  const production = page.getByRole("table", { name: "Subscriptions" }).getByRole("row", { name: "Acme Production" });
  expect(await production.innerText()).toContain("Partially read");
  await production.getByRole("link", { name: "1 vault could not be read completely" }).click();
  await expect
    .poll(() => page.getByRole("table", { name: "Vaults" }).getByRole("row").allInnerTexts())
    .toEqual([expect.stringContaining("Access problems"), expect.stringContaining("kv-shop")]);
});

withBrowser("the overview says that everything was read only after a completed scan of all subscriptions", async () => {
  expect((await forceScan()).status).toBe("completed");
  expect(await readOverview()).toMatch(ALL_READ_NOTICE);

  denyOperation("arm.diagnosticSettings");
  expect((await forceScan()).status).toBe("partial");
  const partial = await readOverview();
  expect(partial).toContain("The last scan of all subscriptions was only partially completed.");
  expect(partial).not.toMatch(ALL_READ_CLAIM);
});

withBrowser(
  "a failure to list subscriptions is shown until a later scan of all subscriptions, not of one",
  async () => {
    denyOperation("arm.listSubscriptions");
    expect((await forceScan()).status).toBe("failed");
    expect((await forceScan({ subscriptions: [FINANCE] })).status).toBe("completed");
    expect(await readOverview()).not.toMatch(ALL_READ_CLAIM);
    const [item] = await unreadSubscriptions().allInnerTexts();
    expect(item).toMatch(/^The list of subscriptions: Could not list subscriptions /);
    expect(item).toContain("the custom role Credential Lifecycle Inventory Reader on the subscription");
  },
);
