import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { expect, vi } from "vitest";
import {
  ACCOUNTS,
  evaluateAlerts,
  MOST_CLICKS_FROM_MAIL,
  NOT_OWNED_APP,
  OTHER_UNPROVEN_APP,
  OUTLET,
  openMail,
  READY_APP,
  service,
  task,
  UNPROVEN_APP,
  visit,
  waitForMail,
} from "./tasks-fixture.ts";

// Tasks of a person who fixes what an alert names, and who decides what alerts are sent. tasks.test.ts runs them.

const inDays = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);

task("create an alert rule and see what it would send", async () => {
  const visitor = await visit();
  await visitor.follow("Alerts", visitor.navigation);
  await visitor.press("Create rule");
  await visitor.type("Name", "Expires soon");
  // Enter adds an address. The last one needs no extra step.
  await visitor.type("Email addresses", "former@acme.example, on-call@acme.example");
  await visitor.page.getByRole("textbox", { name: "Email addresses" }).press("Enter");
  await visitor.press("Remove former@acme.example", visitor.dialog);
  await visitor.type("Email addresses", "lead@acme.example");
  await visitor.press("Preview alerts", visitor.dialog);
  await visitor.see(/kv-shop\/smtp/, visitor.dialog);
  await visitor.press("Create rule", visitor.dialog);
  await visitor.dialog.waitFor({ state: "hidden" });
  const { items } = (await service.admin("GET", "/alerts/rules")).body;
  const created = items.find(({ name }: { name: string }) => name === "Expires soon");
  expect(created.recipients).toEqual(["on-call@acme.example", "lead@acme.example"]);
  visitor.expectClicks();
});

task("from an alert mail to the rotated secret and its resolution, on one page", async () => {
  await service.admin("POST", "/alerts/rules", {
    name: "Applications",
    alertType: "credentialExpiry",
    recipients: ["on-call@acme.example"],
  });
  await evaluateAlerts();
  const mail = await waitForMail(new RegExp(READY_APP));
  const visitor = await visit();
  await openMail(visitor, mail);
  await visitor.follow(`${READY_APP}/current`);
  await visitor.arrive(new RegExp(READY_APP));
  await visitor.see("Expires soon");
  await visitor.see("Ready", visitor.page.getByRole("region", { name: "Status" }));
  await visitor.press(/^Rotate secret: /);
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.press("Rotate secret", visitor.dialog);
  const card = visitor.page.getByRole("region", { name: "Rotation", exact: true });
  await card.getByRole("list", { name: "Steps of the rotation" }).waitFor();
  await visitor.see("Resolved", card);
  visitor.expectClicks(MOST_CLICKS_FROM_MAIL);

  // The page is the way to the application, which leads back to the credential.
  await visitor.follow(/^Application /);
  await visitor.arrive(READY_APP);
  const id = keyIdOf(READY_APP, "current");
  await visitor.click(visitor.page.locator(`main a[href*="${id}"]`).first(), "current");
  await visitor.page.getByRole("region", { name: "Rotation", exact: true }).waitFor();
  // The notification that the mail contained is listed, although others were sent in between.
  await visitor.see("Applications", visitor.page.getByRole("region", { name: "Notifications", exact: true }));
});

task("from an alert mail to the rotated secret, if it must first be proven where the secret is stored", async () => {
  // The rule of the previous task sent one mail about the expiring applications, with READY_APP in its subject. The
  // newest mail about expiry can be that of another rule.
  const mail = await waitForMail(/expire/);
  const visitor = await visit();
  await openMail(visitor, mail.includes(OTHER_UNPROVEN_APP) ? mail : await waitForMail(new RegExp(READY_APP)));
  await visitor.follow(`${OTHER_UNPROVEN_APP}/current`);
  await visitor.arrive(new RegExp(OTHER_UNPROVEN_APP));
  await visitor.see("No confirmed match");
  // The first button is the next step. The rotation itself waits for it.
  const status = visitor.page.getByRole("region", { name: "Status" });
  expect(await status.locator("button.fui-Button").first().innerText()).toBe("Test match");
  const rotate = status.getByRole("button", { name: "Rotate secret", exact: true });
  await rotate.waitFor();
  expect(await rotate.getAttribute("aria-disabled")).toBe("true");
  await visitor.press("Test match: kv-shop/billing-export-secret");
  await visitor.see("Ready", visitor.page.getByRole("region", { name: "Status" }));
  await visitor.press(/^Rotate secret: /);
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.press("Rotate secret", visitor.dialog);
  await visitor.see("Resolved", visitor.page.getByRole("region", { name: "Rotation", exact: true }));
  visitor.expectClicks(MOST_CLICKS_FROM_MAIL);
});

task("rotate an application's secret from the first view and watch its steps", async () => {
  const visitor = await visit();
  await visitor.follow("Rotation", visitor.navigation);
  await visitor.follow(UNPROVEN_APP);
  // The expired secret offers its deletion. The main action is the next step of the secret that expires next.
  await visitor.see(/replaces it, and is the one to rotate|replaces it\./);
  await visitor.see(new RegExp(`az ad app credential delete --id .* --key-id ${keyIdOf(UNPROVEN_APP, "before")}`));
  const test = visitor.page.getByRole("button", { name: "Test match: kv-shop/crm-importer-secret" }).first();
  const rotate = visitor.page.getByRole("button", { name: /^Rotate secret/ });
  const colorOf = (button: typeof test) => button.evaluate((element) => getComputedStyle(element).backgroundColor);
  expect(await rotate.count()).toBe(1);
  expect(await colorOf(test)).not.toBe(await colorOf(rotate));
  await visitor.press("Test match: kv-shop/crm-importer-secret");
  await visitor.see("Ready");
  expect(await rotate.count()).toBe(1);
  await visitor.press(/^Rotate secret: /);
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.press("Rotate secret", visitor.dialog);
  // By its role: a dialog over the page would hide the heading.
  await visitor.page.getByRole("heading", { name: "Steps" }).waitFor();
  await visitor.see("Overlap period: both secrets are valid");
  await visitor.see(/^Signed in 4 times in a row with the new secret\.$/);
  await visitor.see(/kv-shop\/crm-importer-secret: updated\. The new value was written as version/);
  visitor.expectClicks();
});

task("an operator finds the vault secrets that store keys, and sees how many keys could not be read", async () => {
  const { control } = service.cloud;
  const fault = { match: { operation: "arm.listStorageAccountKeys" }, action: { kind: "deny" }, times: 1 } as const;
  control.addFault(fault);
  const visitor = await visit("operator");
  await visitor.follow("Credentials", visitor.navigation);
  for (const [result, denied] of [
    [/^Completed: 1 vault secret stores a key\. Compared \d+ vault secrets with the keys of 1 resource\.$/, 1],
    [/^Completed: 2 vault secrets store a key\. Compared \d+ vault secrets with the keys of 2 resources\.$/, 0],
  ] as const) {
    await visitor.press("Find credentials");
    await visitor.press("Find credentials", visitor.dialog);
    await visitor.see(result);
    expect(await visitor.page.getByText("Not compared: 1 resource whose keys").count()).toBe(denied);
  }
  const rows = visitor.page.getByRole("table", { name: "Credentials" }).getByRole("row");
  await rows.filter({ hasText: "starchive" }).waitFor();
  // One click to the view, and two for each of the two runs.
  visitor.expectClicks(5);
});

task("a storage key that expires in 5 days is rotated", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.follow("Credentials", visitor.navigation);
  // Client secrets and keys are in one list, soonest expiry first.
  const table = page.getByRole("table", { name: "Credentials" });
  const row = table.getByRole("row").filter({ hasText: /^\W*stshop/ });
  await row.waitFor();
  const names = await table
    .getByRole("row")
    .getByRole("link", { name: /\/current|key1, key2/ })
    .allInnerTexts();
  expect(names.findIndex((name) => name.includes(READY_APP))).toBeLessThan(
    names.findIndex((name) => name.includes("stshop")),
  );
  expect(await row.innerText()).toMatch(
    /Storage account[\s\S]*kv-shop\/shop-storage-key[\s\S]*in [45] days[\s\S]*Ready/,
  );
  await visitor.follow(/stshop/, row);
  await visitor.arrive(/stshop.*\(key1, key2\)/);
  await visitor.see(/A rotation regenerates key2, .* key1 stays valid/);
  await visitor.press(/^Rotate key: /);
  await visitor.press("Preview rotation", visitor.dialog);
  // One vault can't be read, so the plan asks for a decision and says why.
  await visitor.see(/^The last discovery could not read all vault secrets\./, visitor.dialog);
  await visitor.click(visitor.dialog.getByLabel("Regenerate key2 even if it may be in use"), "accept");
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.see(/^Regenerate key2 of the storage account stshop/, visitor.dialog);
  await visitor.see(/^Leave key1 as it is\./, visitor.dialog);
  await visitor.see(/^kv-shop\/shop-storage-key$/, visitor.dialog.getByRole("status"));
  await visitor.see(/app-orders/, visitor.dialog.getByRole("status"));
  expect(await visitor.dialog.getByText("can't start yet").count()).toBe(0);
  await visitor.press("Rotate key", visitor.dialog);
  await page.getByRole("heading", { name: "Steps" }).waitFor();
  await visitor.see(/Replaces key1 by key2, in the resource group /);
  await visitor.see("Overlap period: both keys are valid");
  await visitor.see("Regenerated key2.");
  await visitor.see(/kv-shop\/shop-storage-key: updated\. The new value was written as version/);
  expect(await page.getByRole("main").innerText()).not.toMatch(/client secret|undefined|null/);
  visitor.expectClicks();
  const { control } = service.cloud;
  const { id } = control.consumers.resources().find((one) => one.id.endsWith("/stshop"))!;
  const regenerated = control.consumers.keys(id).filter(({ regeneration }) => regeneration !== undefined);
  expect(regenerated.map(({ key, value }) => [key, value])).toEqual([
    ["key2", control.secretValue("kv-shop", ACCOUNTS.stshop)],
  ]);
  // The list no longer calls the key ready for a rotation.
  await visitor.follow("Credentials", visitor.navigation);
  await row.filter({ hasText: "Only one can run at a time." }).filter({ hasNotText: "Ready" }).waitFor();
});

task("see what a rotation would touch", async () => {
  const visitor = await visit();
  await visitor.follow("Inventory", visitor.navigation);
  await visitor.follow("db");
  await visitor.see("app-orders", visitor.page.getByRole("region", { name: "Used by" }));
  await visitor.press(/^Rotate secret: /);
  await visitor.choose("Source of the new value", "Generate a random value");
  await visitor.click(visitor.dialog.getByLabel(/I confirm that any value works/), "confirm");
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.see("Key Vault secrets to update", visitor.dialog);
  await visitor.see(/app-orders/, visitor.dialog.getByRole("status"));
  visitor.expectClicks();
});

task("snooze an asset for two weeks", async () => {
  const visitor = await visit();
  await visitor.follow("Inventory", visitor.navigation);
  await visitor.follow("smtp");
  await visitor.press("Snooze: kv-shop/smtp");
  await visitor.type("Reason", "Renewed with the next release");
  await visitor.type("Until (end of day)", inDays(14));
  await visitor.press("Snooze asset", visitor.dialog);
  await visitor.see(/Snoozed until/);
  visitor.expectClicks();
});

task("exempt a violation until a date, with a reason", async () => {
  const visitor = await visit();
  await visitor.follow("Inventory", visitor.navigation);
  await visitor.follow("smtp");
  await visitor.press("Exempt from check: kv-shop/smtp");
  await visitor.type("Reason", "Shut down next month");
  await visitor.type("Expires", inDays(30));
  await visitor.press("Create exemption", visitor.dialog);
  await visitor.dialog.waitFor({ state: "hidden" });
  visitor.expectClicks();
});

task("fix a critical violation with the command of its page, until the page finds no problem", async () => {
  const visitor = await visit();
  await visitor.follow("Compliance", visitor.navigation);
  await visitor.follow(/gone$/);
  await visitor.arrive("gone");
  await visitor.press("Copy Azure CLI command");
  await visitor.see(/^Copied\. The command fixes this: /);
  visitor.expectClicks();
  const command = await visitor.page.evaluate(() => navigator.clipboard.readText());
  expect(command).toContain("az keyvault secret");
  // The person runs the command.
  service.cloud.control.putSecret("kv-shop", {
    name: "gone",
    contentType: "text/plain",
    expiresInDays: 60,
    tags: { owner: "web" },
  });
  await service.scan();
  await service.waitForEmptyQueues();
  await visitor.page.reload();
  await visitor.see(/No problems found|Expires in/);
  expect(await visitor.page.getByRole("main").innerText()).not.toContain("Expired 2 days ago");
});

task("register a B2C tenant, tested first", async () => {
  const tenant = service.cloud.control.tenants.list().find(({ domain }) => domain === OUTLET.domain)!;
  const visitor = await visit();
  await visitor.follow("B2C tenants", visitor.navigation);
  await visitor.press("Add tenant");
  await visitor.type("Tenant ID", tenant.id, { mayBeId: true });
  await visitor.type("Name", "Outlet");
  await visitor.type("Domain", OUTLET.domain);
  await visitor.type("Client ID", tenant.clientId, { mayBeId: true });
  await visitor.type("Client secret", "a wrong secret");
  await visitor.press("Test connection", visitor.dialog);
  await visitor.see("Connection test failed.", visitor.dialog);
  await visitor.type("Client secret", secretValueOf(OUTLET.registration, "lifecycle"));
  await visitor.press("Test connection", visitor.dialog);
  await visitor.see("Connection test passed.", visitor.dialog);
  await visitor.press("Add tenant", visitor.dialog);
  await visitor.dialog.waitFor({ state: "hidden" });
  visitor.expectClicks();
});

task("a credential of a B2C tenant has the same page, and the way to its tenant", async () => {
  const tenant = service.cloud.control.tenants.list().find(({ domain }) => domain === OUTLET.domain)!;
  await service.admin("POST", `/b2c/tenants/${tenant.id}/discover`);
  const find = async () => {
    const assets = await service.listAll("/api/assets/discovery/assets?source=b2c");
    return assets.find(({ credential }) => credential.applicationName === "Outlet Web");
  };
  const { id } = await vi.waitUntil(find, { timeout: 150_000, interval: 200 });
  const visitor = await visit("admin", `/inventory/${id}`);
  await visitor.arrive(/Outlet Web/);
  await visitor.see("Expires soon");
  const actions = visitor.page.getByRole("group", { name: "Next actions" });
  await visitor.see(/can't create credentials in B2C tenants/, actions);
  await visitor.press(/^Assign an owner: /, actions);
  await visitor.type("Owner", "ann@acme.example");
  await visitor.see(/az ad app owner add .*ann@acme\.example/, visitor.dialog);
  await visitor.press("Close", visitor.dialog);
  await visitor.follow(/^B2C tenant /);
  await visitor.arrive("Outlet");
});

task("see why an application's secret can't be rotated, and copy the command that makes it possible", async () => {
  const visitor = await visit();
  await visitor.follow("Rotation", visitor.navigation);
  await visitor.follow(NOT_OWNED_APP);
  await visitor.arrive(NOT_OWNED_APP);
  await visitor.see("Not possible");
  await visitor.see(/is not an owner of the application/);
  await visitor.see(new RegExp(`az ad app owner add --id ${appIdOf(NOT_OWNED_APP)} --owner-object-id `));
  expect(await visitor.page.getByRole("button", { name: /^Rotate secret: / }).count()).toBe(0);
  visitor.expectClicks();
});

task.for([
  ["user", "operator or admin"],
  ["auditor", "operator or admin"],
] as const)("a person with the role %s sees what is not allowed, why, and whom to ask", async ([role, who]) => {
  const visitor = await visit(role, "/inventory/kv-shop.secret.db");
  await visitor.arrive("db");
  const actions = visitor.page.getByRole("group", { name: "Next actions" });
  for (const title of ["Rotate secret", "Snooze", "Exempt from check"]) {
    const button = actions.getByRole("button", { name: title, exact: true });
    await button.waitFor();
    expect(await button.getAttribute("aria-disabled")).toBe("true");
    const description = (await button.getAttribute("aria-describedby"))!;
    expect(await visitor.page.locator(`[id="${description}"]`).innerText()).toMatch(
      new RegExp(`^Your role is ${role}\\. Ask a user with the role .*admin`),
    );
  }
  await visitor.see(new RegExp(`Ask a user with the role ${who}`), actions);
  // Commands can be copied by everyone: the Azure portal decides who may run them.
  expect(await actions.getByRole("button", { name: "Copy Azure CLI command" }).isEnabled()).toBe(true);
});

task("an operator can snooze, but sees whom to ask for a rotation", async () => {
  const visitor = await visit("operator", "/inventory/kv-shop.secret.db");
  const actions = visitor.page.getByRole("group", { name: "Next actions" });
  await actions.getByRole("button", { name: "Snooze: kv-shop/db" }).waitFor();
  const rotate = actions.getByRole("button", { name: /^Rotate secret/ });
  await rotate.waitFor();
  expect(await rotate.getAttribute("aria-disabled")).toBe("true");
  await visitor.see(/Your role is operator\. Ask a user with the role admin/, actions);
});
