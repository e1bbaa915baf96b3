import { expect } from "vitest";
import { sampled } from "../support/cases.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { show, visit, withPlanted } from "./opened.ts";

/** A filter of each list that has some: its label, what is chosen or typed there, and what the address then has. */
type List = [view: string, label: string, value: string, address: string];
const AUDIT: List = ["/audit", "Event", "alertRule.created", "event_type=alertRule.created"];
const LISTS: List[] = [
  ["/alerts", "Outcome", "failed", "status=failed"],
  ["/compliance", "Severity", "critical", "severity=critical"],
  ["/dependencies", "On a new version", "takes it when told to", "refresh=action"],
  ["/inventory", "Name contains", "smtp", "search=smtp"],
  ["/rotation", "Part of the name", "App 002", "search=App+002"],
  ["/sync", "State", "paused", "state=paused"],
];

withPlanted("a list's filters are in the address, and Back takes them back", async () => {
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
    // As somebody opens it who was sent the address.
    await page.reload();
    await expect.poll(() => field.inputValue(), { message: view }).not.toBe(before);
    await page.goBack();
    await expect.poll(() => field.inputValue(), { message: view }).toBe(before);
  }
  expect(complaints).toEqual([]);
});

withPlanted("what a rule tells of leads to where it is mended", async () => {
  const { page, complaints } = await visit("/#/alerts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New rule" }).click();
  await fillIn(dialog, { Name: "Of violations", "Tells when": "Something is not compliant" });
  await fillIn(dialog, { "E-mail addresses": "on-call@acme.example", "Only this vault": "kv-shop" });
  await dialog.getByRole("button", { name: "Show what it would tell" }).click();
  const check = dialog.getByRole("link", { name: "secret-expired", exact: true });
  await check.waitFor();
  expect(await check.getAttribute("href")).toBe("#/compliance?check=secret-expired");
  expect(complaints).toEqual([]);
});
