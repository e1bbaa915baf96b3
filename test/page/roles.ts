import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/sampling.ts";
import { ADMIN } from "../support/service.ts";
import {
  addresses,
  enter,
  isDrawn,
  needsOf,
  offers,
  operationsOf,
  service,
  show,
  visit,
  withBrowser,
  withPlanted,
} from "./fixture.ts";
import { OTHERS, PASSWORD } from "./seed-data.ts";
import { unlicensed } from "./unlicensed-host.ts";

/** Opens views and returns the operations that each one offers, and any errors. */
async function openViews(host: string, views: string[]) {
  const { page, complaints } = await visit("/#/license", host);
  await page.getByRole("heading", { name: "License", exact: true }).waitFor();
  const offered = new Map<string, string[]>();
  for (const view of views) {
    await show(page, view);
    await isDrawn(page, view);
    offered.set(view, await operationsOf(page));
  }
  const navigation = await page.getByRole("navigation").getByRole("link").allTextContents();
  return { page, complaints, offered, navigation };
}

withPlanted(
  "the page hides operations that a role can't call, and the API rejects them",
  async () => {
    const titled = offers.views;
    const inNavigation = titled.map(({ path }) => path);
    const others = addresses().filter((address) => !inNavigation.includes(address));
    // A sample that includes a PRO view. call-counts.ts opens all views in the navigation.
    const all = [...new Set([...sampled(inNavigation, 4), "/rotation", ...sampled(others, 4)])];
    const admin = await openViews(service.url, all);
    expect(admin.complaints).toEqual([]);
    const operations = [...new Set([...admin.offered.values()].flat())];
    expect(operations.length).toBeGreaterThan(IS_CAMPAIGN ? 35 : 10);

    for (const role of OTHERS) {
      await enter(role, PASSWORD);
      const may = (operation: string) => offers.roleAllows(role, operation);
      const open = titled.filter(({ needs }) => may(needs));
      // Includes views that the role can't open, for example from a shared link: the page must not make calls that are denied.
      const seen = await openViews(service.url, sampled(all, 3));
      expect.soft(seen.complaints, role).toEqual([]);
      expect.soft(seen.navigation, role).toEqual(open.map(({ title }) => title));
      // Sessions and tokens differ by user.
      const isOfAll = (operation: string) => !["endSession", "endToken"].includes(operation);
      for (const [view, offered] of seen.offered)
        expect
          .soft([role, view, offered.filter(isOfAll)])
          .toEqual([role, view, may(needsOf(view)) ? admin.offered.get(view)!.filter(may).filter(isOfAll) : []]);
      const refused = operations.filter((operation) => !may(operation));
      expect(refused.length).toBeGreaterThan(IS_CAMPAIGN ? 20 : 3);
      const answers = await seen.page.evaluate(
        (calls) =>
          Promise.all(
            calls.map(async ({ method, path }) => {
              const headers = { "Content-Type": "application/json" };
              const answer = await fetch(path, { method, headers, body: "{}" });
              return `${answer.status} ${((await answer.json()) as { code: string }).code}`;
            }),
          ),
        refused.map(offers.callTo),
      );
      expect(new Set(answers), role).toEqual(new Set(["403 forbidden"]));
    }

    await enter(ADMIN.username, ADMIN.password);
    const licensed = titled
      .map(({ path }) => path)
      .filter((path) => admin.offered.get(path)?.some(offers.needsLicence));
    expect(licensed.length).toBeGreaterThan(IS_CAMPAIGN ? 5 : 0);
    const unlicensedAdmin = await openViews(unlicensed, licensed);
    expect.soft(unlicensedAdmin.complaints).toEqual([]);
    for (const [view, offered] of unlicensedAdmin.offered)
      expect.soft([view, offered.filter(offers.needsLicence)]).toEqual([view, []]);
  },
  LONG_MS,
);

withBrowser("no view makes an API call without a permission check", () => {
  expect(offers.uncheckedCalls()).toEqual([]);
});
