import { expect } from "vitest";
import { sampled } from "../support/sampling.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { show, visit, withPlanted } from "./fixture.ts";

/** One filter per list: the view, its label, the input, and the expected part of the address. */
type List = [view: string, label: string, value: string, address: string];
const AUDIT: List = ["/audit", "Event", "alertRule.created", "event_type=alertRule.created"];
const LISTS: List[] = [
  ["/alerts", "Status", "Failed", "status=failed"],
  ["/compliance", "Severity", "critical", "severity=critical"],
  ["/dependencies", "After a new version", "needs an update or restart", "refresh=action"],
  ["/inventory", "Name contains", "smtp", "search=smtp"],
  ["/rotation", "Name contains", "App 002", "search=App+002"],
  ["/sync", "Status", "Paused", "state=paused"],
];

withPlanted("filters are part of the address, and Back restores them", async () => {
  const { page, complaints } = await visit("/#/license");
  const main = page.getByRole("main");
  for (const [view, label, value, address] of [AUDIT, ...sampled(LISTS, 2)]) {
    await show(page, view);
    const field = fieldOf(main, label);
    await field.waitFor();
    const before = await field.inputValue();
    await fillIn(main, { [label]: value });
    await expect.poll(() => page.url(), { message: view }).toContain(address);
    if (view === AUDIT[0]) await page.getByText("after: name: ").first().waitFor();
    // Open the address as from a shared link.
    await page.reload();
    await expect.poll(() => field.inputValue(), { message: view }).not.toBe(before);
    await page.goBack();
    await expect.poll(() => field.inputValue(), { message: view }).toBe(before);
  }
  expect(complaints).toEqual([]);
});

withPlanted("an item of an alert preview links to the violations of its check", async () => {
  const { page, complaints } = await visit("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Create rule" }).click();
  await fillIn(dialog, { Name: "Of violations", Trigger: "Compliance violation" });
  await fillIn(dialog, { "Email addresses": "on-call@acme.example", Vault: "kv-shop" });
  await dialog.getByRole("button", { name: "Preview alerts" }).click();
  const check = dialog.getByRole("link", { name: "secret-expired", exact: true });
  await check.waitFor();
  expect(await check.getAttribute("href")).toBe("#/compliance?check=secret-expired");
  expect(complaints).toEqual([]);
});
