import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { expect } from "vitest";
import {
  context,
  requireReload,
  seedAddresses,
  service,
  showView,
  visitLoadedPage,
  waitForSpinners,
  waitUntilLoaded,
  withSeedData,
} from "./fixture.ts";
import { expectNoVisualProblems, setLook } from "./visual-checks.ts";

// Tests of lists: order, quick filters, saved views, selections, files, empty states, the calendar, phones, and times.

const SHOP = "/inventory?vault=kv-shop";
/** Returns the names of the assets that the inventory list shows, in its order. */
const shownNames = (page: Page) => page.getByRole("region", { name: "Assets" }).getByRole("link").allTextContents();
const namesOf = async (query: string): Promise<string[]> =>
  (await service.listAll(`/api/assets/discovery/assets?vault=kv-shop&${query}`)).map(({ name }) => name);
/** Opens an address of the current view. `showView` waits for another view. */
const setAddress = (page: Page, address: string) =>
  page.evaluate((hash) => {
    location.hash = hash;
  }, address);
const header = (page: Page, name: string) => page.getByRole("columnheader", { name, exact: true });

withSeedData("headers sort assets by the API's indexes, and the soonest expiry is first by default", async () => {
  const { page, browserErrors, requestedUrls } = await visitLoadedPage(`/#${SHOP}`);
  await expect.poll(() => shownNames(page)).toEqual(await namesOf("sort=expiresOn"));
  expect(await header(page, "Expires").getAttribute("aria-sort")).toBe("ascending");
  await header(page, "Name").getByRole("button").click();
  await expect.poll(() => shownNames(page)).toEqual(await namesOf("sort=name"));
  expect(page.url()).toContain("sort=name");
  expect(requestedUrls.filter((url) => url.includes("/assets?")).at(-1)).toContain("sort=name");
  // The API has no index for other columns, and none for names within a range of expiries.
  expect(await header(page, "Owner").getByRole("button").count()).toBe(0);
  await setAddress(page, `${SHOP}&status=healthy&sort=name`);
  await expect.poll(() => header(page, "Name").getByRole("button").count()).toBe(0);
  await expect.poll(() => shownNames(page)).toEqual(await namesOf("status=healthy"));
  expect(browserErrors).toEqual([]);
});

withSeedData("quick filters set one filter of the expiry each, and no owner with them", async () => {
  const { page, browserErrors } = await visitLoadedPage(`/#${SHOP}`);
  const quick = page.getByRole("group", { name: "Quick filters" });
  await quick.getByRole("button", { name: "Expired" }).click();
  await expect.poll(() => page.url()).toContain("status=expired");
  await quick.getByRole("button", { name: "Next 7 days" }).click();
  await expect.poll(() => page.url()).toMatch(/within=7$/);
  await expect.poll(() => shownNames(page)).toEqual(["smtp"]);
  await quick.getByRole("button", { name: "Next 30 days" }).click();
  await expect.poll(() => shownNames(page)).toEqual(["smtp", "db"]);
  await quick.getByRole("button", { name: "No owner" }).click();
  await expect.poll(() => shownNames(page)).toEqual(["smtp"]);
  expect(await quick.getByRole("button", { pressed: true }).allTextContents()).toEqual(["Next 30 days", "No owner"]);
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect.poll(() => new URL(page.url()).hash).toBe("#/inventory");
  expect(browserErrors).toEqual([]);
});

withSeedData("an absurd number of days in the address is ignored", async () => {
  const { page, browserErrors } = await visitLoadedPage(`/#${SHOP}`);
  const all = await namesOf("sort=expiresOn");
  for (const days of ["1e20", "-7", "Infinity", "soon", "0", "0.00000001"]) {
    await showView(page, "/license");
    await showView(page, `${SHOP}&within=${days}`);
    await expect.poll(() => shownNames(page), { message: days }).toEqual(all);
  }
  await showView(page, "/credentials?due=1e20");
  await page.getByRole("table", { name: "Credentials" }).getByRole("row").nth(1).waitFor();
  expect(browserErrors).toEqual([]);
});

withSeedData("relative times are whole units, in days up to 60", async () => {
  const path = "/api/assets/summary";
  const { body } = await service.admin("GET", path);
  const HOUR = 3_600_000;
  // Minutes are added, because some pass until the page shows the times.
  const cases: [hours: number, text: string][] = [
    [-47.9, "1 day ago"],
    [23.9, "in 23 hours"],
    [47.9, "in 1 day"],
    [31 * 24 + 23, "in 31 days"],
    [60.5 * 24, "in 60 days"],
    [61.5 * 24, "in 2 months"],
    [800 * 24, "in 2 years"],
  ];
  const endsNext = cases.map(([hours], index) => ({
    ...body.endsNext[0],
    id: `kv-shop.secret.case-${index}`,
    expiresOn: new Date(Date.now() + hours * HOUR).toISOString(),
  }));
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  await page.route(`**${path}`, (route) => route.fulfill({ json: { ...body, endsNext } }));
  await showView(page, "/");
  const times = page.getByRole("list", { name: "Next to expire" }).locator("time");
  await expect.poll(() => times.allInnerTexts()).toEqual(cases.map(([, text]) => text));
  await page.unrouteAll();
  requireReload();
  expect(browserErrors).toEqual([]);
});

withSeedData("the table of certificates fits on a screen of 1,440 pixels", async () => {
  const { page } = await visitLoadedPage("/#/license");
  await setLook(page, ["light", 1440]);
  await showView(page, "/compliance/readiness");
  const table = page.getByRole("group", { name: "Certificates", exact: true });
  await table.getByRole("row").nth(1).waitFor();
  expect(await table.evaluate((frame) => frame.scrollWidth - frame.clientWidth)).toBe(0);
});

withSeedData("an empty list of assets says why it is empty and links to all assets", async () => {
  const { page } = await visitLoadedPage("/#/inventory?search=none-is-called-so");
  await page.getByText("No assets match the filters.").waitFor();
  expect(await page.getByRole("table").count()).toBe(0);
  await page.getByRole("link", { name: "Show all assets" }).click();
  await expect.poll(() => new URL(page.url()).hash).toBe("#/inventory");
});

withSeedData("a view is saved under a name, survives a reload, and is shared by its link", async () => {
  await context.grantPermissions(["clipboard-write", "clipboard-read"]);
  const { page, browserErrors } = await visitLoadedPage(`/#${SHOP}&within=7&columns=name,owner`);
  await page.getByRole("button", { name: "Copy link" }).click();
  await page.getByText("Link copied").waitFor();
  expect(await page.evaluate("navigator.clipboard.readText()")).toBe(page.url());
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByText("No saved views yet.").waitFor();
  await page.getByLabel("Name of the view").fill("Urgent in the shop");
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByRole("link", { name: "Urgent in the shop" }).waitFor();
  await page.keyboard.press("Escape");
  await showView(page, "/license");
  await page.reload();
  await showView(page, "/inventory");
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByRole("link", { name: "Urgent in the shop" }).click();
  await expect.poll(() => page.url()).toContain("vault=kv-shop&within=7&columns=name%2Cowner");
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByRole("button", { name: "Delete view: Urgent in the shop" }).click();
  await page.getByText("No saved views yet.").waitFor();
  await page.keyboard.press("Escape");
  expect(browserErrors).toEqual([]);
});

withSeedData("selected assets are snoozed, exempted and fixed together", async () => {
  const alertRule = { name: "Of a selection", alertType: "expiration", recipients: ["on-call@acme.example"] };
  const { body: rule } = await service.admin("POST", "/alerts/rules", alertRule);
  const { page, browserErrors } = await visitLoadedPage(`/#${SHOP}`);
  const dialog = page.getByRole("dialog");
  for (const name of ["smtp", "db"]) await page.getByRole("checkbox", { name: `Select ${name}` }).check();
  await page.getByText("2 selected").waitFor();
  const until = new Date(Date.now() + 14 * 86_400_000).toISOString().slice(0, 10);

  await page.getByRole("button", { name: "Snooze selected" }).click();
  await dialog.getByRole("option", { name: alertRule.name }).waitFor({ state: "attached" });
  await dialog.getByLabel("Alert rule").selectOption({ label: alertRule.name });
  await dialog.getByLabel("Reason").fill("Maintenance");
  await dialog.getByLabel("Until (end of day)").fill(until);
  await dialog.getByRole("button", { name: "Snooze assets" }).click();
  await dialog.getByText("2 snoozes created.").waitFor();
  await dialog.getByRole("button", { name: "Close", exact: true }).click();
  const snoozes = await service.listAll(`/alerts/snoozes?rule_id=${rule.id}`);
  const snoozed = snoozes.filter(({ ruleId }) => ruleId === rule.id).map(({ assetId }) => assetId);
  expect(snoozed.sort()).toEqual(["kv-shop.secret.db", "kv-shop.secret.smtp"]);

  await page.getByRole("button", { name: "Exempt selected" }).click();
  const check = dialog.getByLabel("Check");
  await check.waitFor();
  const checkId = await check.inputValue();
  const failing = await service.listAll(`/compliance/violations?vault=kv-shop&check=${checkId}&exempted=false`);
  const expected = failing.map(({ resourceId }) => resourceId).filter((id) => /\.(smtp|db)$/.test(id));
  await dialog.getByLabel("Reason").fill("Accepted");
  await dialog.getByLabel("Expires").fill(until);
  await dialog.getByRole("button", { name: "Create exemptions" }).click();
  await dialog.getByText(`${expected.length} exemption${expected.length === 1 ? "" : "s"} created.`).waitFor();
  await dialog.getByRole("button", { name: "Close", exact: true }).click();
  const exemptions = (await service.listAll("/compliance/exemptions")).filter(({ reason }) => reason === "Accepted");
  expect(exemptions.map(({ scope }) => scope.id).sort()).toEqual(expected.sort());

  await page.getByRole("button", { name: "Show fix commands" }).click();
  await page.getByText(/# kv-shop\/(smtp|db): /).waitFor();
  await page.getByRole("button", { name: "Clear selection" }).click();
  await expect.poll(() => page.getByRole("button", { name: "Snooze selected" }).count()).toBe(0);
  for (const { id } of exemptions) await service.admin("DELETE", `/compliance/exemptions/${id}`);
  await service.admin("DELETE", `/alerts/rules/${rule.id}`);
  expect(browserErrors).toEqual([]);
});

withSeedData("vaults are found by a part of their name, and the shown rows are saved as CSV", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/vaults");
  const vaults = page.getByRole("table", { name: "Vaults" });
  await vaults.getByRole("link", { name: "kv-shop" }).waitFor();
  await page.getByLabel("Vault name contains").fill("WALLED");
  await expect.poll(() => vaults.getByRole("link").allTextContents()).toEqual(["kv-walled"]);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download shown rows as CSV: Vaults" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("vaults.csv");
  const lines = readFileSync((await download.path())!, "utf8").split("\r\n");
  expect(lines[0]).toBe(
    '\uFEFF"Vault","Subscription","Resource group","Secrets","Keys","Certificates","Expired assets","Urgent assets","Access problems"',
  );
  // The header, the row, and an empty text after the last line break.
  expect([lines[1]!.startsWith('"kv-walled","Shop",'), lines.length]).toEqual([true, 3]);
  // A 0 would be wrong, because the lists of this vault can't be read.
  expect(lines[1]).toContain('"Not read","Not read","Not read","Not read","Not read"');
  // Fluent UI colors the row under the pointer.
  await vaults.getByRole("row").nth(1).hover();
  await expectNoVisualProblems(page, "vaults-hovered", [["dark", 1440]]);
  await page.getByLabel("Vault name contains").fill("none-is-called-so");
  await page.getByText("No vaults match the filters.").waitFor();
  expect(browserErrors).toEqual([]);
});

withSeedData("the audit log is searched for a text, and a start and its outcome are one row", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/audit");
  const rows = page.getByRole("table", { name: "Entries" }).getByRole("row");
  await page.getByLabel("Contains").fill("none-contains-it");
  await expect.poll(() => page.url()).toContain("search=none-contains-it");
  await page.getByText("No entries contain the text").waitFor();
  // The search covers what the page shows, such as the names of details.
  await page.getByLabel("Contains").fill("scan retention DAYS");
  // The seed data changed this setting to 80 days.
  await rows
    .filter({ hasText: /scan retention days: .* → .*80/ })
    .first()
    .waitFor();
  expect(await rows.filter({ hasText: "user.signedIn" }).count()).toBe(0);
  await page.getByRole("button", { name: "Clear filters" }).click();

  const entries = await service.listAll("/audit/entries");
  const actionOf = ({ requestId, eventType, target }: Record<string, unknown>) =>
    JSON.stringify([requestId, eventType, target]);
  const hasOutcome = (entry: Record<string, unknown>) =>
    entry.outcome === "intent" && entries.some((one) => one !== entry && actionOf(one) === actionOf(entry));
  const { eventType } = entries.find(hasOutcome)!;
  const joined = entries.filter((entry) => entry.eventType === eventType && !hasOutcome(entry));
  await setAddress(page, `/audit?event_type=${eventType}`);
  // The rows and the header.
  await expect.poll(() => rows.count()).toBe(Math.min(joined.length, 100) + 1);
  // Each of these actions ended within the minute in which it started, so the start is not repeated.
  expect(await rows.filter({ hasText: /started/ }).count()).toBe(0);
  expect(browserErrors).toEqual([]);
});

withSeedData("the calendar links each day to the assets that expire on it", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/inventory");
  await page.getByRole("link", { name: "Expiry calendar" }).click();
  const [smtp] = await service.listAll("/api/assets/discovery/assets?vault=kv-shop&search=smtp");
  const day = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeZone: "UTC" }).format(
    new Date(smtp.expiresOn),
  );
  await page.getByRole("table").first().waitFor();
  await page.getByRole("link", { name: new RegExp(`^${day}: `) }).click();
  await expect.poll(() => shownNames(page)).toContain("smtp");
  expect(browserErrors).toEqual([]);
});

withSeedData("an exemption names its credential and the last day that the user chose", async () => {
  const violations = await service.listAll("/compliance/violations");
  const { resourceId, checkId } = violations.find((one) => one.credentialTitle !== null && !one.exempted)!;
  const body = { checkId, scope: { type: "asset", id: resourceId }, category: "waiver", reason: "For the test" };
  const { body: exemption } = await service.admin("POST", "/compliance/exemptions", { ...body, until: "2027-01-15" });
  const { page, browserErrors } = await visitLoadedPage("/#/compliance");
  const row = page.getByRole("row").filter({ hasText: "For the test" });
  await row.getByText("Jan 15, 2027 (end of day, UTC)").waitFor();
  await row
    .getByRole("link")
    .filter({ hasText: /App|img/ })
    .waitFor();
  expect(await row.innerText()).not.toMatch(/[\da-f]{8}-/);
  await service.admin("DELETE", `/compliance/exemptions/${exemption.id}`);
  expect(browserErrors).toEqual([]);
});

withSeedData(
  "applications are sorted by what is due, and an expired secret with a successor can be deleted",
  async () => {
    const path = "/api/automation/rotation/apps?limit=1";
    const [application] = (await service.admin("GET", path)).body.items;
    const inDays = (days: number) => new Date(Date.now() + (days + 0.5) * 86_400_000).toISOString();
    const secret = (displayName: string, status: string, days: number) => ({
      keyId: `00000000-0000-4000-8000-${String(Math.abs(days)).padStart(12, "0")}`,
      assetId: `entra.tenant.app.${displayName}`,
      kind: "secret",
      of: "application",
      displayName,
      hint: null,
      thumbprint: null,
      startsOn: null,
      expiresOn: inDays(days),
      status,
      daysUntilExpiry: days,
    });
    const named = (displayName: string, credentials: object[]) => ({
      ...application,
      objectId: displayName,
      displayName,
      reasons: [],
      credentials,
    });
    const items = [
      named("Calm", [secret("before", "expired", -30), secret("now", "healthy", 59)]),
      named("Due", [secret("current", "critical", 5)]),
      named("Late", [secret("old", "expired", -90)]),
    ];
    const { page, browserErrors, requestedUrls } = await visitLoadedPage("/#/license");
    await page.route(/rotation\/apps\?/, (route) =>
      route.fulfill({ json: { items, total: 3, limit: 1000, offset: 0, nextCursor: null } }),
    );
    await showView(page, "/rotation");
    const table = page.getByRole("table", { name: "Applications" });
    await expect
      .poll(() => table.getByRole("row").locator("td:first-child").allInnerTexts())
      .toEqual(["Late", "Due", "Calm"]);
    const calm = await table.getByRole("row").filter({ hasText: "Calm" }).innerText();
    expect(calm).toMatch(/expired, replaced/);
    expect(calm).toMatch(/Nothing is due[\s\S]*Delete the expired secret if it is unused/);
    await page
      .getByText(/^3 applications, .*: 1 with expired credentials only, 1 whose credential expires soon/)
      .waitFor();
    // The Credentials page shares the response.
    await showView(page, "/credentials");
    const before = page
      .getByRole("table", { name: "Credentials" })
      .getByRole("row")
      .filter({ hasText: /Calm.*before/ });
    await before.getByText("Expired 29 days ago").waitFor();
    await before.getByRole("link", { name: /^Delete it if it is unused/ }).waitFor();
    expect(requestedUrls.filter((url) => url.includes("/rotation/apps?"))).toHaveLength(1);
    await page.unrouteAll();
    expect(browserErrors).toEqual([]);
  },
);

withSeedData("times name their zone, and a button switches between the browser's zone and UTC", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  const browser = await page.context().newCDPSession(page);
  await browser.send("Emulation.setTimezoneOverride", { timezoneId: "Asia/Tokyo" });
  await page.reload();
  await showView(page, seedAddresses.entry);
  await page.getByText("Times are in Asia/Tokyo.").waitFor();
  // A view without a time names no zone.
  await showView(page, "/permissions");
  await page.getByText("Not checked since you opened this page.").waitFor();
  expect(await page.getByText("Times are in").isVisible()).toBe(false);
  await showView(page, seedAddresses.entry);
  const times = () =>
    page
      .locator("main time")
      .filter({ hasText: /\d:\d\d/ })
      .first()
      .innerText();
  await expect.poll(times).toMatch(/GMT\+9$/);
  await page.getByRole("button", { name: "Show times in UTC" }).click();
  await expect.poll(times).toMatch(/UTC$/);
  await page.reload();
  await page.getByRole("button", { name: "Show times in Asia/Tokyo" }).click();
  await expect.poll(times).toMatch(/GMT\+9$/);
  await browser.send("Emulation.setTimezoneOverride", { timezoneId: "" });
  await browser.detach();
  requireReload();
  expect(browserErrors).toEqual([]);
});

withSeedData("long lists are folded on a phone", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  await setLook(page, ["light", 390]);
  for (const view of ["/audit", "/dependencies", "/compliance"]) {
    await showView(page, view);
    await waitForSpinners(page, view);
    await waitUntilLoaded(page);
    const height = await page.getByRole("main").evaluate((main) => main.scrollHeight);
    expect.soft([view, height < 12_000], `${height} px`).toEqual([view, true]);
  }
  await showView(page, "/audit");
  const entries = page.getByRole("list", { name: "Entries" }).locator(":scope > li");
  await expect.poll(() => entries.count()).toBe(20);
  await entries.locator("summary").first().click();
  await page.getByRole("button", { name: /^Show \d+ more$/ }).click();
  await expect.poll(() => entries.count()).toBeGreaterThan(20);
  expect(browserErrors).toEqual([]);
});

withSeedData("names in the graph can be read, and many possible consumers without a name are folded", async () => {
  const path = "/api/assets/dependencies/blast-radius/kv-shop.secret.db";
  const { body } = await service.admin("GET", path);
  const [consumer] = body.consumers;
  const guests = Array.from({ length: 10 }, (_, index) => ({
    id: `principal-${index}`,
    kind: "principal",
    name: `ServicePrincipal 11111111-2222-4333-8444-${String(index).padStart(12, "0")}`,
    environment: null,
  }));
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  await page.route(`**${path}`, (route) =>
    route.fulfill({
      json: {
        ...body,
        nodes: [...body.nodes, ...guests],
        edges: [
          ...body.edges,
          ...guests.map(({ id }) => ({ from: id, to: body.secret, strength: "entitled", refresh: "blind" })),
        ],
        consumers: [
          ...body.consumers,
          ...guests.map((guest) => ({
            ...consumer,
            strength: "entitled",
            resource: { ...consumer.resource, ...guest },
          })),
        ],
      },
    }),
  );
  const scale = () =>
    page.locator(".react-flow__viewport").evaluate((viewport) => new DOMMatrix(getComputedStyle(viewport).transform).a);
  for (const width of [1440, 390]) {
    await setLook(page, ["light", width]);
    await showView(page, "/license");
    await showView(page, "/dependencies/kv-shop.secret.db");
    await page
      .locator(".react-flow__node")
      .getByText(/^1\d others that may read it$/)
      .waitFor();
    // Names have 12 pixels at scale 1.
    await expect.poll(scale, { message: `${width} px` }).toBeGreaterThanOrEqual(0.8);
    expect(await page.locator(".react-flow__node").allInnerTexts()).not.toContainEqual(
      expect.stringContaining("11111111"),
    );
  }
  // A graph without folding has the nodes of the response and the added ones.
  await page.getByRole("button", { name: /^Draw all 1\d possible consumers$/ }).click();
  await expect.poll(() => page.locator(".react-flow__node").count()).toBe(body.nodes.length + 10);
  const scaleBefore = await scale();
  await page.getByRole("button", { name: "Zoom out" }).click();
  await expect.poll(scale).toBeLessThan(scaleBefore);
  await page.getByText("10 users, groups or applications without a known name").waitFor();
  await page.unrouteAll();
  requireReload();
  expect(browserErrors).toEqual([]);
});
