import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { expect, vi } from "vitest";
import { fillIn } from "./fill-in.ts";
import { seedAddresses, service, visitLoadedPage, withSeedData } from "./fixture.ts";
import { expectNoVisualProblems } from "./visual-checks.ts";

// Tests of a rotation plan and of forms in the web page, which page.test.ts runs. `withSeedData` declares a test that needs the seed
// data of seed-data.ts.

withSeedData(
  "a rotation plan names each place that is not written, with the reason and a link to confirm it",
  async () => {
    const { control } = service.cloud;
    const name = "Copied API";
    const appId = control.directory.putApplication({ name, secrets: [{ name: "current", expiresInDays: 200 }] });
    const { keyId } = control.directory.secrets(appId)[0]!;
    const copiedSecret = {
      name: "copied-api",
      value: secretValueOf(name, "current"),
      contentType: `${name}:${appId}:${keyId}`,
    };
    control.putSecret("kv-shop", { ...copiedSecret, createdDaysAgo: 30 });
    control.putSecret("kv-copies", { ...copiedSecret, createdDaysAgo: 1 });
    await service.scan();
    await service.admin("POST", "/api/automation/rotation/discover");
    // Runs the timer that finds vault secrets which store the application's secret (matches).
    await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
    const countMatches = async () =>
      (await service.admin("GET", `/api/automation/rotation/apps/${appId}/matches`)).body.total;
    await vi.waitUntil(async () => (await countMatches()) === 2, { timeout: 150_000, interval: 200 });
    const { page, browserErrors } = await visitLoadedPage(`/#/rotation/apps/${appId}`);
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: /^Rotate secret/ }).click();
    await dialog.getByRole("button", { name: "Preview rotation" }).click();
    await dialog
      .getByText("kv-copies/copied-api (proven match): stores the old secret, but no user confirmed it")
      .waitFor();
    expect(await dialog.getByText("kv-shop/copied-api", { exact: true }).count()).toBe(1);
    const link = dialog.getByRole("link", { name: "Test or confirm the matches of the application" });
    expect(await link.getAttribute("href")).toBe(`#/rotation/apps/${appId}`);
    await expectNoVisualProblems(page, "rotation-plan-left-out");
    expect(browserErrors).toEqual([]);
  },
);

withSeedData("a form previews a change, and keeps its input after a conflict with another change", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Create rule" }).click();
  await dialog.getByLabel("Name").fill("Soon");
  await dialog.getByLabel("Email addresses").fill("on-call@acme.example");
  await dialog.getByRole("button", { name: "Preview alerts" }).click();
  await dialog.getByText(/The rule would send \d+ alerts? now/).waitFor();
  await expectNoVisualProblems(page, "rule-form");
  await dialog.getByLabel("Days before expiry").fill("30, soon");
  await dialog.getByRole("button", { name: "Create rule" }).click();
  await dialog.getByText('"soon" is not a number of days.').waitFor();
  expect(await dialog.getByText(/is not a number of days/).count()).toBe(1);
  await dialog.getByLabel("Days before expiry").fill("10");
  expect(await dialog.getByText("The rule would send").count()).toBe(0);
  await dialog.getByRole("button", { name: "Create rule" }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Edit: Soon" }).click();
  await dialog.getByLabel("Name").fill("Sooner");
  const { body } = await service.admin("GET", "/alerts/rules?limit=100");
  const { id } = body.items.find(({ name }: { name: string }) => name === "Soon");
  // Another user changes the rule while its form is open.
  expect((await service.admin("PUT", `/alerts/rules/${id}`, { tellRecovery: false })).status).toBe(200);
  expect(browserErrors).toEqual([]);
  await dialog.getByRole("button", { name: "Save rule", exact: true }).click();
  await dialog.getByRole("button", { name: "Reload" }).click();
  await dialog.getByRole("button", { name: "Reload" }).waitFor({ state: "hidden" });
  expect(await dialog.getByLabel("Name").inputValue()).toBe("Sooner");
  await dialog.getByRole("button", { name: "Save rule", exact: true }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("link", { name: "Sooner" }).waitFor();

  // The browser logged the rejected save as an error.
  browserErrors.length = 0;
  await page.goto(`${service.url}/#/dependencies/kv-shop.secret.db`);
  await page.getByRole("button", { name: /^Rotate secret: / }).click();
  await dialog.getByRole("combobox", { name: "Source of the new value" }).selectOption("made");
  await dialog.getByLabel("I confirm that any value works").check();
  const rotate = dialog.getByRole("button", { name: "Rotate secret", exact: true });
  expect(await rotate.count()).toBe(0);
  await dialog.getByRole("button", { name: "Preview rotation" }).click();
  await dialog.getByText(/Key Vault secrets to update|Request ID/).waitFor();
  expect(await dialog.textContent()).toContain("Key Vault secrets to update");
  await expectNoVisualProblems(page, "rotation-plan");
  await rotate.click();
  await page.getByRole("heading", { name: "Steps" }).waitFor();
  await page.getByText("Save the new secret to Key Vault").waitFor();
  // The list of blockers can name the consumer too.
  await page.getByText("app-orders").first().waitFor();
  await expectNoVisualProblems(page, "one-rotation");
  expect(browserErrors).toEqual([]);
});

withSeedData("an expiry date keeps its time of day until a user edits it", async () => {
  const expiresOn = "2031-03-04T15:30:00.000Z";
  const tenant = seedAddresses.tenant.replace("/b2c/", "/b2c/tenants/");
  const readExpiry = async () => Date.parse((await service.admin("GET", tenant)).body.clientSecretExpiresOn ?? "");
  expect((await service.admin("PUT", tenant, { clientSecretExpiresOn: expiresOn })).status).toBe(200);
  const { page } = await visitLoadedPage(`/#${seedAddresses.tenant}`);
  const dialog = page.getByRole("dialog");
  const save = async () => {
    await dialog.getByRole("button", { name: "Save tenant" }).click();
    await dialog.waitFor({ state: "hidden" });
  };
  const edit = page.getByRole("button", { name: "Edit tenant", exact: true });
  await edit.click();
  // Enters a new secret and another date, and takes both back before saving.
  await fillIn(dialog, { "Client secret": "another", "Client secret expires": "2032-01-01" });
  await fillIn(dialog, { "Client secret": "" });
  expect(await dialog.getByText("Changed by another user").count()).toBe(0);
  await fillIn(dialog, { "Client secret expires": "2031-03-04", "Refresh interval (hours)": "48" });
  await save();
  expect(await readExpiry()).toBe(Date.parse(expiresOn));
  await edit.click();
  await fillIn(dialog, { "Client secret expires": "" });
  await save();
  expect(await readExpiry()).toBeNaN();
});
