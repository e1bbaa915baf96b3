import { expect } from "vitest";
import { ADMIN } from "../support/service.ts";
import { service, showView, visitLoadedPage, withBrowser, withSeedData } from "./fixture.ts";

// Tests that the page says what the service can't know, and what a change replaces.

withSeedData("an application's certificate has no score, because the service can't find who holds it", async () => {
  const [certificate] = await service.listAll("/api/assets/discovery/assets?source=entra&type=certificate");
  const sentence =
    "The service can't find which programs hold this certificate. Before you change it, see the last sign-in";
  const { page, browserErrors } = await visitLoadedPage(`/#/dependencies/${encodeURIComponent(certificate.id)}`);
  const main = page.getByRole("main");
  await main.getByText(sentence).waitFor();
  await main.getByText("No logs are configured, so sign-ins are unknown.").waitFor();
  expect(await main.innerText()).not.toMatch(/score|Could not be searched|key vault/i);

  await showView(page, `/inventory/${encodeURIComponent(certificate.id)}`);
  await main.getByText(sentence).waitFor();
  await showView(page, "/inventory?type=certificate");
  await main.getByRole("cell", { name: "Entra application", exact: true }).first().waitFor();
  expect(browserErrors).toEqual([]);
});

withSeedData(
  "a score of 0 is shown as unknown before the first complete discovery, then as a lower bound",
  async () => {
    const path = "/api/assets/dependencies/blast-radius/kv-shop.secret.smtp";
    const { body } = await service.admin("GET", path);
    const { page, browserErrors } = await visitLoadedPage("/#/license");
    const main = page.getByRole("main");
    const show = async (change: object) => {
      await page.route(`**${path}`, (route) => route.fulfill({ json: { ...body, score: 0, drivers: [], ...change } }));
      await page.goto(`${service.url}/#/dependencies/kv-shop.secret.smtp`);
      await page.reload();
    };
    const coverage = { ...body.coverage, lastFullAt: null };
    await show({ consumers: [], edges: [], incomplete: true, incompleteReason: "neverSearched", coverage });
    await main.getByText("Impact score of a rotation: unknown").waitFor();
    await main.getByRole("link", { name: "Discover dependencies" }).click();
    await page.getByRole("heading", { name: "Dependencies", exact: true }).waitFor();
    await page.unrouteAll();
    await show({ incomplete: true, incompleteReason: "notAllSearched" });
    await main.getByText("Impact score of a rotation: at least 0 of 100").waitFor();
    await page.unrouteAll();
    expect(browserErrors).toEqual([]);
  },
);

withBrowser("the form of another single sign-on protocol says which provider it replaces", async () => {
  const put = async (body: object) => expect((await service.admin("PUT", "/auth/sso/config", body)).status).toBe(200);
  const warning =
    "Users of the current provider can no longer sign in with it, and the service treats them as new users.";
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  const dialog = page.getByRole("dialog");
  const openForm = async (name: string) => {
    await showView(page, "/license");
    await showView(page, "/sso");
    await page.reload();
    await page.getByRole("button", { name, exact: true }).click();
    await dialog.waitFor();
  };
  await put({ providerType: "oidc", oidcIssuer: "https://idp.example.invalid" });
  await openForm("Configure SAML");
  await dialog.getByText(`Saving replaces OpenID Connect (issuer https://idp.example.invalid). ${warning}`).waitFor();
  await page.keyboard.press("Escape");
  await openForm("Configure OpenID Connect");
  expect(await dialog.innerText()).not.toContain("Saving replaces");
  await page.keyboard.press("Escape");
  await put({ providerType: "saml", oidcIssuer: null, samlIdpEntityId: "urn:idp" });
  await openForm("Configure OpenID Connect");
  await dialog.getByText(`Saving replaces SAML (entity ID urn:idp). ${warning}`).waitFor();
  await page.keyboard.press("Escape");
  await put({ providerType: "oidc", samlIdpEntityId: null });
  expect(browserErrors).toEqual([]);
});

withBrowser("turning off password sign-in names the bootstrap administrator", async () => {
  expect((await service.admin("GET", "/auth/sso/config")).body.bootstrapUsername).toBe(ADMIN.username);
  const { page } = await visitLoadedPage("/#/sso");
  await page.getByRole("button", { name: "Turn off password sign-in" }).click();
  await page
    .getByRole("dialog")
    .getByText(new RegExp(`Only the bootstrap administrator .?${ADMIN.username}.? can`))
    .waitFor();
  await page.keyboard.press("Escape");
});

withBrowser("deleting the own account says so", async () => {
  const { page } = await visitLoadedPage("/#/access");
  await page.getByRole("button", { name: `Delete user: ${ADMIN.username}`, exact: true }).click();
  await page.getByRole("dialog").getByText("This is your own account: you are signed out.").waitFor();
  await page.keyboard.press("Escape");
});

withBrowser("the form of the owners names the tag that contains the owner", async () => {
  expect((await service.admin("GET", "/alerts/owners")).body.ownerTag).toBe("owner");
  const { page } = await visitLoadedPage("/#/alerts");
  await page.getByRole("button", { name: "Edit owners" }).click();
  await page
    .getByRole("dialog")
    .getByText(/the value of the tag .?owner.?, a colon/)
    .waitFor();
  await page.keyboard.press("Escape");
});

withSeedData("a subscription whose vaults could not be listed says that its vaults were not read", async () => {
  const { body } = await service.admin("GET", "/subscriptions?limit=100");
  const [item] = body.items;
  const lastFailure = {
    code: "accessDenied",
    message: "Denied.",
    remedy: "Grant the role Reader.",
    at: item.lastScan.finishedAt,
  };
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  const main = page.getByRole("main");
  await showView(page, "/vaults");
  await main.getByRole("link", { name: "1 vault could not be read completely" }).click();
  await expect.poll(() => page.url()).toContain("failing=true");
  await page.route(/\/subscriptions\?/, (route) =>
    route.fulfill({ json: { ...body, items: [{ ...item, lastFailure, counts: { ...item.counts, vaults: 0 } }] } }),
  );
  await page.reload();
  // The table of vaults below can have such cells too.
  const subscriptions = main.getByRole("table", { name: "Subscriptions" });
  await subscriptions.getByRole("cell", { name: "Not read", exact: true }).waitFor();
  await page.unrouteAll();
  expect(browserErrors).toEqual([]);
});

withBrowser("the question before a scan or a rotation stops says what happens to the work so far", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  const dialog = page.getByRole("dialog");
  const scans = await service.admin("GET", "/api/assets/discovery/scans?limit=1");
  const running = { ...scans.body.items[0], status: "running" };
  await page.route("**/api/assets/discovery/scans?limit=1", (route) =>
    route.fulfill({ json: { ...scans.body, items: [running] } }),
  );
  const progress = { ...running, progress: { vaultsDone: 1, vaultsTotal: 3 } };
  await page.route("**/api/assets/discovery/scan/*/status", (route) => route.fulfill({ json: progress }));
  await showView(page, "/");
  await page.getByRole("button", { name: "Stop scan" }).click();
  await dialog.getByText("Vaults that were read stay in the inventory with their new values.").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  const { rotationId } = (await service.admin("GET", "/api/automation/rotation/history?limit=1")).body.items[0];
  const path = `/api/automation/rotation/rotations/${rotationId}`;
  const { body: rotation } = await service.admin("GET", path);
  const showWith = async (change: object, sentence: string) => {
    await page.route(`**${path}`, (route) => route.fulfill({ json: { ...rotation, ...change } }));
    await showView(page, `/rotation/${rotationId}`);
    await page.getByRole("button", { name: "Cancel and roll back" }).click();
    await dialog.getByText(sentence).waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await showView(page, "/license");
  };
  const stepsWith = (status: string) => rotation.steps.map((step: object) => ({ ...step, status }));
  await showWith({ status: "overlapping", steps: stepsWith("done") }, "The old value is written to the vault again");
  await showWith(
    { status: "creating", steps: stepsWith("waiting") },
    "No key vault secret and no consumer was changed",
  );
  expect(browserErrors).toEqual([]);
});
