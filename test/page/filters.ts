// Tests of the filters of lists in the web page, which page.test.ts runs.

import { expect } from "vitest";
import { sampled } from "../support/sampling.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { showView, visitLoadedPage, withSeedData } from "./fixture.ts";

/** A filter of a view's list: the view, the label of the filter, the input, and the expected part of the address. */
type FilterCase = [view: string, label: string, value: string, address: string];
const AUDIT: FilterCase = ["/audit", "Event", "alertRule.created", "event_type=alertRule.created"];
const OTHER_FILTERS: FilterCase[] = [
  ["/alerts", "Status", "Failed", "status=failed"],
  ["/compliance", "Severity", "critical", "severity=critical"],
  ["/credentials", "Kind", "Storage account", "kind=storage"],
  ["/dependencies", "Effect of a new version", "needs an update or restart to use the new version", "refresh=action"],
  ["/inventory", "Name contains", "smtp", "search=smtp"],
  ["/proposals", "Status", "Rejected", "state=rejected"],
  ["/rotation", "Name contains", "App 002", "search=App+002"],
  ["/sync", "Status", "Disabled", "state=paused"],
];

withSeedData("filters are part of the address, and Back restores them", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/license");
  const main = page.getByRole("main");
  for (const [view, label, value, address] of [AUDIT, ...sampled(OTHER_FILTERS, 2)]) {
    await showView(page, view);
    const field = fieldOf(main, label);
    await field.waitFor();
    const valueBefore = await field.inputValue();
    await fillIn(main, { [label]: value });
    await expect.poll(() => page.url(), { message: view }).toContain(address);
    if (view === AUDIT[0])
      await page
        .getByText(/^name: /)
        .first()
        .waitFor({ state: "attached" });
    // Open the address as from a shared link.
    await page.reload();
    await expect.poll(() => field.inputValue(), { message: view }).not.toBe(valueBefore);
    await page.goBack();
    await expect.poll(() => field.inputValue(), { message: view }).toBe(valueBefore);
  }
  expect(browserErrors).toEqual([]);
});

withSeedData("an item of an alert preview links to the violations of its check", async () => {
  const { page, browserErrors } = await visitLoadedPage("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Create rule" }).click();
  await fillIn(dialog, { Name: "Of violations", Event: "Compliance violation" });
  await fillIn(dialog, { "Email addresses": "on-call@acme.example", Vault: "kv-shop" });
  await dialog.getByRole("button", { name: "Preview alerts" }).click();
  // The dialog shows the first ten violations.
  const check = dialog.getByRole("link", { name: /^(secret|key|certificate|vault)-[a-z-]+$/ }).first();
  await check.waitFor();
  expect(await check.getAttribute("href")).toBe(`#/compliance?check=${await check.textContent()}`);
  expect(browserErrors).toEqual([]);
});
