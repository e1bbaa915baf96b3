import { expect } from "vitest";
import { service, task, visit } from "./tasks-fixture.ts";

// Tasks of a person who wants to find or understand something, and of an administrator. tasks.test.ts runs them.

task("what expires within 7 days, and who owns it", async () => {
  const visitor = await visit("user");
  const list = visitor.page.getByRole("list", { name: "Next to expire" });
  const first = list.getByRole("listitem").filter({ hasText: "db" }).first();
  await first.waitFor();
  expect(await first.innerText()).toMatch(/db[\s\S]*kv-shop[\s\S]*shop[\s\S]*in [23] days/);
  // The bars of the chart are weeks, which their labels say with both days.
  const chart = visitor.page.getByRole("region", { name: "Expiring soon" });
  await visitor.see(/per week/, chart);
  await visitor.see(/^[A-Z][a-z]{2} \d+\s–\s(?:[A-Z][a-z]{2} )?\d+$/, chart);
  // Assets without an owner say so.
  await visitor.see("no owner", list);
  visitor.expectClicks(0);
});

task("what has expired is said before the setup steps, and each number opens the list that it counts", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.see("Set up this service");
  await visitor.follow("2 assets expired");
  await visitor.see("2 assets");
  await page.goBack();
  const link = page.getByRole("link", { name: /^\d+ expire within 7 days$/ });
  const count = Number(/^\d+/.exec(await link.innerText())![0]);
  const lines = (await page.getByRole("main").innerText()).split("\n").filter(Boolean);
  const lineIndex = (text: RegExp) => lines.findIndex((line) => text.test(line));
  expect(lineIndex(/^2 assets expired, \d+ expire within 7 days$/)).toBeGreaterThan(lineIndex(/^Coverage: /));
  expect(lineIndex(/^2 assets expired, /)).toBeLessThan(lineIndex(/^Set up this service$/));
  await visitor.click(link, "expire within 7 days");
  await visitor.see(`${count} assets`);
  visitor.expectClicks(2);
});

task("why a vault can't be read, and what to do", async () => {
  const visitor = await visit("user");
  const vaults = visitor.page.getByRole("list", { name: "Vaults that could not be read" });
  await visitor.see(/^Vault kv-walled: .+ role /, vaults);
  visitor.expectClicks(0);
});

task("which subscription is not read at all", async () => {
  const visitor = await visit("user");
  await visitor.see(/^Coverage: 1 of 2 subscriptions, 1 of 2 known vaults, 4 of 4 applications read\.$/);
  const subscriptions = visitor.page.getByRole("list", { name: "Subscriptions that could not be read" });
  await visitor.see(/^Subscription Finance: .+ role /, subscriptions);
  expect(await visitor.page.getByRole("main").innerText()).not.toMatch(/\beverything was\b|\ball (?:can|was|were)\b/i);
  visitor.expectClicks(0);
});

task("a secret is found by a part of its name, with Ctrl+K and the keyboard only", async () => {
  const visitor = await visit("user");
  const { page } = visitor;
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog", { name: "Search" }).waitFor();
  await page.keyboard.type("mtp");
  const assets = page.getByRole("region", { name: "Assets" });
  await visitor.see("secret in kv-shop", assets);
  // Users without the permission to list users don't search them.
  expect(await page.getByRole("region", { name: "Users" }).count()).toBe(0);
  await page.keyboard.press("Enter");
  await visitor.arrive("smtp");
  visitor.expectClicks(0);
});

task("a search finds vaults, applications, failing checks, and pages, and Escape closes it", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.press("Search");
  const box = page.getByLabel("Search text");
  await box.fill("kv-wall");
  await visitor.see("kv-walled", page.getByRole("region", { name: "Vaults" }));
  await box.fill("crm");
  await visitor.see("CRM Importer", page.getByRole("region", { name: "Applications" }));
  await box.fill("still enabled");
  await visitor.see("Expired secret is still enabled", page.getByRole("region", { name: "Violations" }));
  await box.fill("audit");
  await visitor.see("Audit log", page.getByRole("region", { name: "Pages" }));
  await box.fill("no such thing");
  await visitor.see("Nothing found.");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  visitor.expectClicks(1);
});

task("a failing check leads to its violations", async () => {
  const visitor = await visit("user");
  const checks = visitor.page.getByRole("list", { name: "Checks that lower the score the most" });
  await visitor.see("In the order of their effect on the score: the number of violations, weighted by severity.");
  await visitor.follow(
    "1 violation",
    checks.getByRole("listitem").filter({ hasText: "Expired secret is still enabled" }),
  );
  await visitor.arrive("Compliance");
  const table = visitor.page.getByRole("table", { name: "Violations" });
  await visitor.see("kv-shop/gone", table);
  expect(await table.getByRole("row").count()).toBe(2);
  visitor.expectClicks(1);
});

task("compliance shows the score by subscription, owner and framework, with older editions folded", async () => {
  const visitor = await visit("user", "/compliance");
  const { page } = visitor;
  await visitor.see("Shop", page.getByRole("list", { name: "Score by subscription" }));
  const owners = page.getByRole("list", { name: "Violations by owner" });
  await visitor.see("shop", owners);
  const editions = page.getByRole("button", { name: /^CIS Microsoft Azure Foundations Benchmark/ });
  await editions.first().waitFor();
  expect(await editions.allInnerTexts()).toEqual([expect.stringContaining("6.0.0")]);
  await visitor.press(/^\d+ older editions$/);
  await expect.poll(() => editions.count()).toBe(5);
  // The violations without an owner have a bar too. Each number is that of the list that its link opens.
  expect(await owners.getByRole("listitem").first().innerText()).toMatch(/^No owner/);
  const link = owners.getByRole("link").first();
  const count = Number(/^\d+/.exec(await link.innerText())![0]);
  await visitor.click(link, "violations of the owner");
  const rows = page.getByRole("table", { name: "Violations" }).getByRole("row");
  await expect.poll(() => rows.count()).toBe(count + 1);
  visitor.expectClicks(2);
});

task("the numbers of changes lead to the list of these changes", async () => {
  const visitor = await visit("user");
  const link = visitor.page.getByRole("link", { name: /^\d+ added$/ });
  const count = Number(/^\d+/.exec(await link.innerText())![0]);
  await visitor.follow(/^\d+ added$/);
  await visitor.arrive("Changes");
  const rows = visitor.page.getByRole("table", { name: "Changes" }).getByRole("row");
  await expect.poll(() => rows.count()).toBe(count + 1);
  visitor.expectClicks(1);
});

task("owners are notified 30, 7 and 1 days before expiry, with one click", async () => {
  const before = (await service.admin("GET", "/alerts/rules")).body.items;
  for (const { id } of before) await service.admin("DELETE", `/alerts/rules/${id}`);
  const visitor = await visit();
  const steps = visitor.page.getByRole("list", { name: "Setup steps" });
  await visitor.see("Choose who is notified", steps);
  // The bootstrap administrator has no address. An account with one is not asked.
  await visitor.type("Email address", "on-call@acme.example");
  await visitor.press("Notify owners 30, 7 and 1 days before expiry");
  await visitor.see("2 alert rules");
  const { items } = (await service.admin("GET", "/alerts/rules")).body;
  expect(items).toMatchObject([
    { name: "Owners: 30, 7 and 1 days before expiry", thresholds: [30, 7, 1], recipients: ["on-call@acme.example"] },
    { alertType: "scanFailure", enabled: true },
  ]);
  visitor.expectClicks(1);
  for (const { id } of items) await service.admin("DELETE", `/alerts/rules/${id}`);
});

task("an API token is created and revoked", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.follow("Access", page.getByRole("navigation", { name: "Views" }));
  await visitor.press("Create token");
  const dialog = page.getByRole("dialog");
  await visitor.type("Name", "nightly export");
  await visitor.press("Create token", dialog);
  await visitor.see("Copy the token now: it is shown only once.", dialog);
  await visitor.press("Close", dialog);
  const row = page.getByRole("row").filter({ hasText: "nightly export" });
  await visitor.press(/^Revoke/, row);
  await visitor.press("Revoke token", dialog);
  await row.waitFor({ state: "detached" });
  visitor.expectClicks();
});

task("sign-in by OIDC is set up and tested before it is saved", async () => {
  const visitor = await visit();
  const { page } = visitor;
  const { issuer, clientId, clientSecret } = service.cloud.oidc;
  await visitor.follow("Single sign-on", page.getByRole("navigation", { name: "Views" }));
  await visitor.press("Configure OpenID Connect");
  const dialog = page.getByRole("dialog");
  expect(await dialog.getByRole("button", { name: "Save configuration" }).count()).toBe(0);
  await visitor.type("Issuer", issuer);
  // The client ID and secret of the provider's registration come from another system.
  await visitor.type("Client ID", clientId, { mayBeId: true });
  await visitor.type("Client secret", clientSecret, { mayBeId: true });
  await visitor.press("Test connection", dialog);
  await visitor.press("Save configuration", dialog);
  await dialog.waitFor({ state: "detached" });
  await visitor.see(`OpenID Connect with ${issuer}`);
  // A passed test is no sign-in, so neither this page nor the setup steps say that single sign-on works.
  await visitor.see("No successful sign-in yet");
  expect(await page.getByRole("button", { name: "Test saved configuration" }).isVisible()).toBe(true);
  await visitor.follow("Overview", page.getByRole("navigation", { name: "Views" }));
  await visitor.see("Configure OpenID Connect or SAML");
  visitor.expectClicks();
});

task("sign-in by SAML is set up and tested before it is saved", async () => {
  const visitor = await visit();
  const { page } = visitor;
  await visitor.follow("Single sign-on", page.getByRole("navigation", { name: "Views" }));
  await visitor.press("Configure SAML");
  const dialog = page.getByRole("dialog");
  expect(await dialog.getByRole("button", { name: "Save configuration" }).count()).toBe(0);
  // The provider's metadata contains its entity ID, addresses and certificates.
  await visitor.type("Provider metadata", service.cloud.saml.metadata(), { mayBeId: true });
  await visitor.press("Test connection", dialog);
  await visitor.press("Save configuration", dialog);
  await dialog.waitFor({ state: "detached" });
  await visitor.see(/^SAML with /);
  visitor.expectClicks();
});

for (const role of ["operator", "auditor", "user"] as const)
  task(`${role}: what is not allowed, why, and whom to ask`, async () => {
    const visitor = await visit(role, "/sso");
    await visitor.see(`Your role is ${role}. Required: admin. Ask an administrator for access.`);
    const names = await visitor.page.getByRole("navigation", { name: "Views" }).getByRole("link").allTextContents();
    expect(names).not.toContain("Single sign-on");
    visitor.expectClicks(0);
  });

task("the navigation has four groups, and a view of one object leads back to its list", async () => {
  const visitor = await visit("admin", "/inventory/kv-shop.secret.db");
  const navigation = visitor.page.getByRole("navigation", { name: "Views" });
  const groups = ["Monitor", "Automate", "Govern", "Administer"];
  for (const group of groups) await visitor.see(group, navigation);
  expect(await visitor.page.getByRole("navigation", { name: "Breadcrumb" }).innerText()).toMatch(
    /Monitor\s*\/\s*Inventory\s*\/\s*Asset/,
  );
  // The vault and the subscription that can't be read, and the expired secret.
  expect(await navigation.getByRole("link", { name: "Vaults", exact: true }).getAttribute("title")).toBe(
    "2 gaps in the coverage",
  );
  // The number beside the link has a unit. It is generated content, so that the link's name stays "Vaults".
  expect(await navigation.getByRole("link", { name: "Vaults", exact: true }).getAttribute("data-count")).toBe("2 gaps");
  expect(await navigation.getByRole("link", { name: "Compliance", exact: true }).getAttribute("title")).toMatch(
    /^\d+ critical violations?$/,
  );
  await visitor.follow("Inventory", visitor.page.getByRole("navigation", { name: "Breadcrumb" }));
  await visitor.arrive("Inventory");
  visitor.expectClicks(1);
});
