import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { expect, vi } from "vitest";
import { fillIn } from "./fill-in.ts";
import { planted, service, visit, withPlanted } from "./fixture.ts";
import { looksRight } from "./visual-checks.ts";

withPlanted(
  "a rotation plan names each place that is not written, with the reason and a link to confirm it",
  async () => {
    const { control } = service.cloud;
    const name = "Copied API";
    const appId = control.directory.putApplication({ name, secrets: [{ name: "current", expiresInDays: 200 }] });
    const { keyId } = control.directory.secrets(appId)[0]!;
    const held = {
      name: "copied-api",
      value: secretValueOf(name, "current"),
      contentType: `${name}:${appId}:${keyId}`,
    };
    control.putSecret("kv-shop", { ...held, createdDaysAgo: 30 });
    control.putSecret("kv-copies", { ...held, createdDaysAgo: 1 });
    await service.scan();
    await service.admin("POST", "/api/automation/rotation/discover");
    await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
    const matches = async () =>
      (await service.admin("GET", `/api/automation/rotation/apps/${appId}/matches`)).body.total;
    await vi.waitUntil(async () => (await matches()) === 2, { timeout: 150_000, interval: 200 });
    const { page, complaints } = await visit(`/#/rotation/apps/${appId}`);
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: /^Rotate secret/ }).click();
    await dialog.getByRole("button", { name: "Show plan" }).click();
    await dialog
      .getByText("kv-copies/copied-api (certain): it holds the old secret, but nobody confirmed it")
      .waitFor();
    expect(await dialog.getByText("kv-shop/copied-api", { exact: true }).count()).toBe(1);
    const link = dialog.getByRole("link", { name: "Confirm matches of the application" });
    expect(await link.getAttribute("href")).toBe(`#/rotation/apps/${appId}`);
    await looksRight(page, "rotation-plan-left-out");
    expect(complaints).toEqual([]);
  },
);

withPlanted("a form previews a change, and keeps its input after a conflict with another change", async () => {
  const { page, complaints } = await visit("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Create rule" }).click();
  await dialog.getByLabel("Name").fill("Soon");
  await dialog.getByLabel("Email addresses").fill("on-call@acme.example");
  await dialog.getByRole("button", { name: "Preview alerts" }).click();
  await dialog.getByText(/The rule would send \d+ items? now/).waitFor();
  await looksRight(page, "rule-form");
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
  expect((await service.admin("PUT", `/alerts/rules/${id}`, { tellRecovery: false })).status).toBe(200);
  expect(complaints).toEqual([]);
  await dialog.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.getByRole("button", { name: "Reload" }).click();
  await dialog.getByRole("button", { name: "Reload" }).waitFor({ state: "hidden" });
  expect(await dialog.getByLabel("Name").inputValue()).toBe("Sooner");
  await dialog.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("link", { name: "Sooner" }).waitFor();

  complaints.length = 0;
  await page.goto(`${service.url}/#/dependencies/kv-shop.secret.db`);
  await page.getByRole("button", { name: /^Rotate secret: / }).click();
  await dialog.getByRole("combobox", { name: "New value" }).selectOption("made");
  await dialog.getByLabel("No other system needs to know the value in advance").check();
  const rotate = dialog.getByRole("button", { name: "Rotate secret", exact: true });
  expect(await rotate.count()).toBe(0);
  await dialog.getByRole("button", { name: "Show plan" }).click();
  await dialog.getByText(/Vault secrets to write|Request ID/).waitFor();
  expect(await dialog.textContent()).toContain("Vault secrets to write");
  await looksRight(page, "rotation-plan");
  await rotate.click();
  await dialog.getByRole("link", { name: "Rotation started" }).click();
  await page.getByRole("heading", { name: "Steps" }).waitFor();
  await page.getByText("Write the new secret to the vaults").waitFor();
  // The list of blockers can name the consumer too.
  await page.getByText("app-orders").first().waitFor();
  await looksRight(page, "one-rotation");
  expect(complaints).toEqual([]);
});

withPlanted("an expiry date keeps its time of day until a user edits it", async () => {
  const end = "2031-03-04T15:30:00.000Z";
  const tenant = planted.tenant.replace("/b2c/", "/b2c/tenants/");
  const expiry = async () => Date.parse((await service.admin("GET", tenant)).body.clientSecretExpiresOn ?? "");
  expect((await service.admin("PUT", tenant, { clientSecretExpiresOn: end })).status).toBe(200);
  const { page } = await visit(`/#${planted.tenant}`);
  const dialog = page.getByRole("dialog");
  const save = async () => {
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "hidden" });
  };
  const edit = page.getByRole("button", { name: "Edit", exact: true });
  await edit.click();
  await fillIn(dialog, { "Client secret": "another", "Client secret expires": "2032-01-01" });
  await fillIn(dialog, { "Client secret": "" });
  expect(await dialog.getByText("Changed by another user").count()).toBe(0);
  await fillIn(dialog, { "Client secret expires": "2031-03-04", "Refresh interval (hours)": "48" });
  await save();
  expect(await expiry()).toBe(Date.parse(end));
  await edit.click();
  await fillIn(dialog, { "Client secret expires": "" });
  await save();
  expect(await expiry()).toBeNaN();
});
