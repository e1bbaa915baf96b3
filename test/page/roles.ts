import { expect } from "vitest";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/sampling.ts";
import { ADMIN } from "../support/service.ts";
import {
  addresses,
  needsOf,
  operationsOf,
  permissions,
  service,
  showView,
  signInAs,
  visitLoadedPage,
  waitForSpinners,
  withBrowser,
  withSeedData,
} from "./fixture.ts";
import { OTHER_USERS, PASSWORD } from "./seed-data.ts";
import { unlicensedHost } from "./unlicensed-host.ts";

// Tests that each role sees only what it may do, and that without a license nothing is offered that needs one. page.test.ts runs
// them.

/** Opens views on a host, and returns the operations of each view's buttons, the links of the navigation, and browser errors. */
async function openViews(host: string, views: string[]) {
  const { page, browserErrors } = await visitLoadedPage("/#/license", host);
  await page.getByRole("heading", { name: "License", exact: true }).waitFor();
  const offered = new Map<string, string[]>();
  for (const view of views) {
    await showView(page, view);
    await waitForSpinners(page, view);
    offered.set(view, await operationsOf(page));
  }
  const navigation = await page.getByRole("navigation", { name: "Views" }).getByRole("link").allTextContents();
  return { page, browserErrors, offered, navigation };
}

withSeedData(
  "the page hides operations that a role can't call, and the API rejects them",
  async () => {
    const navigationViews = permissions.views;
    const navigationPaths = navigationViews.map(({ path }) => path);
    const otherPaths = addresses().filter((address) => !navigationPaths.includes(address));
    // A sample that includes a PRO view. call-counts.ts opens all views in the navigation.
    const testedPaths = [...new Set([...sampled(navigationPaths, 4), "/rotation", ...sampled(otherPaths, 4)])];
    const admin = await openViews(service.url, testedPaths);
    expect(admin.browserErrors).toEqual([]);
    const operations = [...new Set([...admin.offered.values()].flat())];
    expect(operations.length).toBeGreaterThan(IS_CAMPAIGN ? 35 : 8);

    for (const role of OTHER_USERS) {
      await signInAs(role, PASSWORD);
      const may = (operation: string) => permissions.roleAllows(role, operation);
      const allowedViews = navigationViews.filter(({ needs }) => may(needs));
      // Includes views that the role can't open, for example from a shared link: the page must not make calls that are denied.
      const opened = await openViews(service.url, sampled(testedPaths, 3));
      expect.soft(opened.browserErrors, role).toEqual([]);
      expect.soft(opened.navigation, role).toEqual(allowedViews.map(({ title }) => title));
      // The rows of sessions and tokens differ by user, and so do their buttons.
      const isIndependentOfUser = (operation: string) => !["endSession", "endToken"].includes(operation);
      for (const [view, offered] of opened.offered) {
        const expected = may(needsOf(view)) ? admin.offered.get(view)!.filter(may).filter(isIndependentOfUser) : [];
        expect.soft([role, view, offered.filter(isIndependentOfUser)]).toEqual([role, view, expected]);
      }
      const deniedOperations = operations.filter((operation) => !may(operation));
      expect(deniedOperations.length).toBeGreaterThan(IS_CAMPAIGN ? 20 : 3);
      const answers = await opened.page.evaluate(
        (calls) =>
          Promise.all(
            calls.map(async ({ method, path }) => {
              const headers = { "Content-Type": "application/json" };
              const answer = await fetch(path, { method, headers, body: "{}" });
              return `${answer.status} ${((await answer.json()) as { code: string }).code}`;
            }),
          ),
        deniedOperations.map(permissions.callTo),
      );
      expect(new Set(answers), role).toEqual(new Set(["403 forbidden"]));
    }

    await signInAs(ADMIN.username, ADMIN.password);
    const viewsThatNeedLicense = navigationViews
      .map(({ path }) => path)
      .filter((path) => admin.offered.get(path)?.some(permissions.needsLicence));
    expect(viewsThatNeedLicense.length).toBeGreaterThan(IS_CAMPAIGN ? 5 : 0);
    const unlicensedAdmin = await openViews(unlicensedHost, viewsThatNeedLicense);
    expect.soft(unlicensedAdmin.browserErrors).toEqual([]);
    for (const [view, offered] of unlicensedAdmin.offered)
      expect.soft([view, offered.filter(permissions.needsLicence)]).toEqual([view, []]);
  },
  LONG_MS,
);

/** The page of one asset of each kind, with the title of its first action. */
const ASSET_PAGES = [
  ["a secret", "kv-shop.secret.smtp", "Rotate secret"],
  ["a key", "kv-shop.key.signing", "Renew"],
  ["a certificate", "kv-certificates.certificate.shop", "Renew"],
  ["an application's secret", undefined, "Rotate secret"],
  ["an application's certificate", undefined, "How to renew"],
] as const;
/** Titles of the action for the owner: of an asset without an owner, of an asset in a vault, and of an application. */
const OWNER_ACTION = /^(?:Assign an owner|Change the owner|Assign a further owner)$/;

withSeedData(
  "the page of each kind of asset offers the same next actions, or says why not and whom to ask",
  async () => {
    const credentials = await service.listAll("/api/assets/discovery/assets?source=entra");
    const idOfCredential = (kind: string): string => credentials.find(({ type }) => kind.endsWith(type)).id;
    for (const role of ["admin", "user"]) {
      if (role !== "admin") await signInAs(role, PASSWORD);
      const { page } = await visitLoadedPage("/#/license");
      for (const [kind, id, firstAction] of ASSET_PAGES) {
        await showView(page, `/inventory/${encodeURIComponent(id ?? idOfCredential(kind))}`);
        await waitForSpinners(page, kind);
        const actions = page.getByRole("group", { name: "Next actions" });
        const found = await actions.getByRole("button").evaluateAll((buttons) =>
          buttons.map((button) => ({
            title: button.textContent!,
            isOff: button.getAttribute("aria-disabled") === "true",
            reason: document.getElementById(button.getAttribute("aria-describedby") ?? "")?.textContent ?? "",
          })),
        );
        const titles = found.map(({ title }) => (OWNER_ACTION.test(title) ? "owner" : title));
        const expected: string[] = [firstAction, "Snooze", "Exempt from check", "owner", "Copy Azure CLI command"];
        if (kind === "a key") expected.push("Rotate key");
        expect([role, kind, titles.sort()]).toEqual([role, kind, expected.sort()]);
        for (const { title, isOff, reason } of found) {
          const isGuarded = ["Rotate secret", "Snooze", "Exempt from check"].includes(title);
          if (role === "user" && isGuarded)
            expect([kind, title, isOff, reason]).toEqual([
              kind,
              title,
              true,
              expect.stringMatching(/^Your role is user\. Ask a user with the role .*admin/),
            ]);
          else if (isOff) expect([kind, title, reason.length > 20]).toEqual([kind, title, true]);
        }
      }
    }
    await signInAs(ADMIN.username, ADMIN.password);
  },
);

withBrowser("no view makes an API call without a permission check", () => {
  expect(permissions.uncheckedCalls()).toEqual([]);
});
