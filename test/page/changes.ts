import { expect, vi } from "vitest";
import { secretValueOf } from "../../infra/local/cloud/company/applications.ts";
import { fillIn } from "./fill-in.ts";
import { looksRight } from "./looks.ts";
import { planted, service, visit, withPlanted } from "./opened.ts";

withPlanted("a change is shown before it is made, and keeps what was typed when another was faster", async () => {
  const { page, complaints } = await visit("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New rule" }).click();
  await dialog.getByLabel("Name").fill("Soon");
  await dialog.getByLabel("E-mail addresses").fill("on-call@acme.example");
  await dialog.getByRole("button", { name: "Show what it would tell" }).click();
  await dialog.getByText(/It would tell of \d+ now/).waitFor();
  await looksRight(page, "rule-form");
  await dialog.getByLabel("Days before the end").fill("10");
  expect(await dialog.getByText("It would tell of").count()).toBe(0);
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Change: Soon" }).click();
  await dialog.getByLabel("Name").fill("Sooner");
  const { body } = await service.admin("GET", "/alerts/rules?limit=100");
  const { id } = body.items.find(({ name }: { name: string }) => name === "Soon");
  expect((await service.admin("PUT", `/alerts/rules/${id}`, { tellRecovery: false })).status).toBe(200);
  expect(complaints).toEqual([]);
  await dialog.getByRole("button", { name: "Change", exact: true }).click();
  await dialog.getByRole("button", { name: "Load again" }).click();
  await dialog.getByRole("button", { name: "Load again" }).waitFor({ state: "hidden" });
  expect(await dialog.getByLabel("Name").inputValue()).toBe("Sooner");
  await dialog.getByRole("button", { name: "Change", exact: true }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("link", { name: "Sooner" }).waitFor();

  complaints.length = 0;
  await page.goto(`${service.url}/#/dependencies/kv-shop.secret.db`);
  await page.getByRole("button", { name: /^Rotate: / }).click();
  await dialog.getByLabel("The new value").selectOption("made");
  await dialog.getByLabel("What checks the value takes any").check();
  const rotate = dialog.getByRole("button", { name: "Rotate", exact: true });
  expect(await rotate.count()).toBe(0);
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await dialog.getByText(/What would be done|Request /).waitFor();
  expect(await dialog.textContent()).toContain("What would be done");
  await looksRight(page, "rotation-plan");
  await rotate.click();
  await dialog.getByRole("link", { name: "It has begun" }).click();
  await page.getByRole("heading", { name: "Steps" }).waitFor();
  await page.getByText("Write it into the vaults").waitFor();
  // What stands against its end, if anything, names it as well.
  await page.getByText("app-orders").first().waitFor();
  await looksRight(page, "one-rotation");
  expect(complaints).toEqual([]);
});

withPlanted(
  "the plan of a rotation says which place is left out and why, and leads to where it is confirmed",
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
    await page.getByRole("button", { name: /^Rotate: / }).click();
    await dialog.getByRole("button", { name: "Show the plan" }).click();
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

withPlanted("the end of a secret stays to the second until somebody changes it", async () => {
  const end = "2031-03-04T15:30:00.000Z";
  const tenant = planted.tenant.replace("/b2c/", "/b2c/tenants/");
  const ends = async () => Date.parse((await service.admin("GET", tenant)).body.clientSecretExpiresOn ?? "");
  expect((await service.admin("PUT", tenant, { clientSecretExpiresOn: end })).status).toBe(200);
  const { page } = await visit(`/#${planted.tenant}`);
  const dialog = page.getByRole("dialog");
  const save = async () => {
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "hidden" });
  };
  const change = page.getByRole("button", { name: "Change", exact: true });
  await change.click();
  await fillIn(dialog, { "Client secret": "another", "The client secret ends on": "2032-01-01" });
  await fillIn(dialog, { "Client secret": "" });
  expect(await dialog.getByText("Set meanwhile").count()).toBe(0);
  await fillIn(dialog, { "The client secret ends on": "2031-03-04", "Every so many hours": "48" });
  await save();
  expect(await ends()).toBe(Date.parse(end));
  await change.click();
  await fillIn(dialog, { "The client secret ends on": "" });
  await save();
  expect(await ends()).toBeNaN();
});
