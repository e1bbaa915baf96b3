import { expect } from "vitest";
import { DAY_MS } from "../../shared/platform/time.ts";
import { ADMIN } from "../support/service.ts";
import { ACCOUNTS, service, task, visit as visitByMouse } from "./tasks-fixture.ts";

// Tasks of a person who works with lists, the audit log, users, syncs and settings, by keyboard. tasks.test.ts runs them.

/** Opens the page for a person who uses only the keyboard. The shared helper clicks with the mouse by default. */
async function visit(...where: Parameters<typeof visitByMouse>) {
  const visitor = await visitByMouse(...where);
  visitor.usesKeyboard = true;
  return visitor;
}

task("a person sorts the inventory by expiry, filters it to one owner, and shares the address", async () => {
  const visitor = await visit("user");
  const { page } = visitor;
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await visitor.follow("Inventory");
  await visitor.arrive("Inventory");
  // The soonest expiry is first without a click. The click shows that the header sorts.
  await visitor.press("Expires");
  await visitor.press("More filters");
  await visitor.type("Owner", "shop");
  await expect.poll(() => page.getByRole("link", { name: /^(db|smtp|gone)$/ }).allTextContents()).toEqual(["db"]);
  await visitor.press("Copy link");
  await visitor.see("Link copied");
  const address = await page.evaluate<string>("navigator.clipboard.readText()");
  expect(new URL(address).hash).toBe("#/inventory?sort=expiresOn&owner=shop");
  visitor.expectClicks(4);
});

task("an auditor reads who changed a setting, exports the entries, and verifies the log", async () => {
  const change = await service.admin("PUT", "/api/settings/compliance-policy", { criticalExpiryDays: 6 });
  expect(change.status).toBe(200);
  const visitor = await visit("auditor");
  const { page } = visitor;
  await visitor.follow("Audit log");
  await visitor.type("Contains", "settings changed");
  const yesterday = new Date(Date.now() - DAY_MS).toISOString().slice(0, 10);
  await visitor.type("From", yesterday);
  await expect.poll(() => page.url()).toMatch(/search=settings\+changed.*start_date=/);
  const entry = page.getByRole("row").filter({ hasText: "settings.changed" }).first();
  await visitor.see(ADMIN.username, entry);
  await visitor.see(/critical expiry days: .*7.* → .*6/, entry);
  const [download] = await Promise.all([page.waitForEvent("download"), visitor.follow("CSV")]);
  expect(download.suggestedFilename()).toMatch(/^audit-.*\.csv$/);
  await visitor.press("Verify audit log");
  await visitor.see(/The audit log is intact|The audit log can't be verified/);
  visitor.expectClicks(3);
  await service.admin("DELETE", "/api/settings/compliance-policy/criticalExpiryDays");
});

task("an asset that stores a storage key says so, and its main action rotates the key", async () => {
  await service.admin("POST", "/api/automation/rotation/credentials/discover");
  const visitor = await visit();
  const { page } = visitor;
  const dialog = page.getByRole("dialog");
  await visitor.follow("Inventory");
  await visitor.follow(ACCOUNTS.starchive);
  await visitor.arrive(ACCOUNTS.starchive);
  const status = page.getByRole("region", { name: "Status" });
  await visitor.see(/^This secret stores a key of the storage account/, status);
  await visitor.see(/^Ready/, status);
  // The target is filled in.
  await visitor.press(/^Rotate key: /);
  await visitor.see(`kv-shop/${ACCOUNTS.starchive}`, dialog);
  await visitor.click(dialog.getByLabel("Regenerate key2 even if it may be in use"), "accept");
  await visitor.click(dialog.getByLabel("Regenerate key1 after the overlap period"), "regenerate the old key");
  await visitor.press("Preview rotation", dialog);
  await visitor.see(/^Check that all known consumers still use key2, then regenerate key1/, dialog);
  await visitor.press("Rotate key", dialog);
  const card = page.getByRole("region", { name: "Rotation", exact: true });
  await visitor.see("Resolved", card);
  await visitor.see(/then regenerate key1, so that its old value is no longer valid/, card);
  await visitor.see("Only one can run at a time.", status);
  visitor.expectClicks(7);
});

task("an auditor sees the keys of resources, but whom to ask for a rotation", async () => {
  const visitor = await visit("auditor");
  await visitor.follow("Credentials");
  await visitor.see(/^Your role is auditor\. Ask a user with the role .*operator/);
  await visitor.press("Keys of resources");
  await visitor.follow(/^\W*starchive/);
  await visitor.arrive(/starchive/);
  await visitor.see(/^Your role is auditor\. Ask a user with the role admin/);
  visitor.expectClicks(3);
});

task("an administrator adds a user, and a reset of the password ends the user's sessions", async () => {
  const visitor = await visit();
  const { page } = visitor;
  const dialog = page.getByRole("dialog");
  const passwords = ["first password of lena", "second password of lena"] as const;
  await visitor.follow("Access");
  await visitor.press("Create user");
  await dialog.getByLabel(/^Username/).fill("lena");
  await dialog.getByLabel(/^Password/).fill(passwords[0]);
  await visitor.press("Create user", dialog);
  await dialog.waitFor({ state: "hidden" });
  const token = await service.signIn({ username: "lena", password: passwords[0] });
  expect((await service.call("GET", "/auth/me", { token })).status).toBe(200);
  await visitor.press("Reset password: lena");
  await visitor.see("ends all sessions of the user", dialog);
  await dialog.getByLabel(/^New password/).fill(passwords[1]);
  await visitor.press("Reset password", dialog);
  await dialog.waitFor({ state: "hidden" });
  expect((await service.call("GET", "/auth/me", { token })).status).toBe(401);
  visitor.expectClicks(5);
});

task("a person copies a secret to another cloud, sees that someone changed the copy, and repairs it", async () => {
  const { providers } = service.cloud.control;
  const configured = await service.admin(
    "POST",
    "/api/automation/sync/providers/hashicorp",
    providers.configurations().hashicorp!,
  );
  expect(configured.status).toBe(200);
  const visitor = await visit();
  const { page } = visitor;
  const dialog = page.getByRole("dialog");
  await visitor.follow("Sync");
  await visitor.press("Create sync");
  await visitor.type("Source key vault name", "kv-shop");
  await visitor.type("Source secret name", "smtp");
  // The page has a card "Target providers", too.
  await dialog.getByLabel("Target provider").selectOption("HashiCorp Vault");
  visitor.clicks.push("Target provider: HashiCorp Vault");
  await visitor.type("Target secret name", "shop/smtp");
  await visitor.press("Create sync", dialog);
  await dialog.waitFor({ state: "hidden" });
  await visitor.follow(/smtp/, page.getByRole("main"));
  await visitor.see("In sync");
  const value = service.cloud.control.secretValue("kv-shop", "smtp");
  await expect.poll(() => providers.hashicorp.data("shop/smtp"), { timeout: 60_000 }).toEqual({ value });
  providers.hashicorp.write("shop/smtp", { value: "changed by someone else" });
  await visitor.press("Sync now");
  await visitor.press("Preview sync", dialog);
  await visitor.see(/Copies the source value|Makes the earlier target version/, dialog);
  await visitor.press("Sync now", dialog);
  await expect.poll(() => providers.hashicorp.data("shop/smtp"), { timeout: 60_000 }).toEqual({ value });
  visitor.expectClicks(8);
});

task("an administrator changes a threshold and sees where its value comes from, before and after", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.follow("Settings");
  const setting = page.getByText("Warning expiry threshold: 30 days").locator("xpath=..");
  await visitor.see("default", setting);
  await visitor.press("Edit: Warning expiry threshold");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Warning expiry threshold \(days\)/).fill("45");
  await visitor.press("Save setting", dialog);
  await dialog.waitFor({ state: "hidden" });
  await visitor.see(/Warning expiry threshold: 45 days\s*set on this page/, page.getByRole("main"));
  await visitor.see(/Default: 30 days\. Allowed: .* last modified by admin/);
  visitor.expectClicks(3);
});
