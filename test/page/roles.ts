import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/cases.ts";
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
} from "./opened.ts";
import { OTHERS, PASSWORD } from "./planted.ts";
import { unlicensed } from "./unlicensed.ts";

/** What is offered in each view once all of it is there, and whether anything was refused on the way. */
async function walk(host: string, views: string[]) {
  const { page, complaints } = await visit("/#/license", host);
  await page.getByRole("heading", { name: "Licence", exact: true }).waitFor();
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
  "what a role may not do is not offered, and refused all the same",
  async () => {
    const titled = offers.views;
    const inNavigation = titled.map(({ path }) => path);
    const others = addresses().filter((address) => !inNavigation.includes(address));
    // Of each kind a few, one that needs a licence among them: limits.ts opens all of the navigation.
    const all = [...new Set([...sampled(inNavigation, 4), "/rotation", ...sampled(others, 4)])];
    const admin = await walk(service.url, all);
    expect(admin.complaints).toEqual([]);
    const operations = [...new Set([...admin.offered.values()].flat())];
    expect(operations.length).toBeGreaterThan(IS_CAMPAIGN ? 35 : 10);

    for (const role of OTHERS) {
      await enter(role, PASSWORD);
      const may = (operation: string) => offers.roleMay(role, operation);
      const open = titled.filter(({ needs }) => may(needs));
      // Those that are not theirs, too, whose addresses somebody may have sent them: nothing is asked for that is refused.
      const seen = await walk(service.url, sampled(all, 3));
      expect.soft(seen.complaints, role).toEqual([]);
      expect.soft(seen.navigation, role).toEqual(open.map(({ title }) => title));
      // Their own sessions and tokens are others than the administrator's.
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
    const unlicensedAdmin = await walk(unlicensed, licensed);
    expect.soft(unlicensedAdmin.complaints).toEqual([]);
    for (const [view, offered] of unlicensedAdmin.offered)
      expect.soft([view, offered.filter(offers.needsLicence)]).toEqual([view, []]);
  },
  LONG_MS,
);

withBrowser("no view calls what it did not ask about", () => {
  expect(offers.unasked()).toEqual([]);
});
