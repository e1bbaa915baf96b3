import { randomUUID } from "node:crypto";
import type { Locator, Page, Route } from "playwright-core";
import { expect } from "vitest";
import { type FormInput, fieldOf, fillIn } from "./fill-in.ts";
import { openInNewTab, requireReload, service, showView, visitLoadedPage, withSeedData } from "./fixture.ts";
import { PASSWORD } from "./seed-data.ts";

// Tests of forms whose request is still pending, fails, or meets a change by another user, and of forms that stay open while the
// view behind them changes.

const dialogOf = (page: Page) => page.getByRole("dialog");
const NEW_TOKEN = { Name: "Slow connection", "Validity (days)": "3" };
const countTokens = async () =>
  (await service.listAll("/auth/tokens")).filter(({ name }: { name: string }) => name.startsWith(NEW_TOKEN.Name))
    .length;

async function fillInNewToken(page: Page, values: FormInput = NEW_TOKEN): Promise<Locator> {
  await page.getByRole("button", { name: "Create token", exact: true }).click();
  await fillIn(dialogOf(page), values);
  return dialogOf(page).getByRole("button", { name: "Create token", exact: true });
}

/** Delays the responses to changes (all methods except GET) at a path until the returned `release` is called. */
async function delayResponses(page: Page, path: string) {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let changeCount = 0;
  await page.route(`**${path}`, async (route) => {
    if (route.request().method() === "GET") return await route.fallback();
    changeCount++;
    const response = await route.fetch();
    await released;
    await route.fulfill({ response });
  });
  return { release, countChanges: () => changeCount };
}

withSeedData(
  "a pending form shows that it waits, sends once, and reports its result even after it was closed",
  async () => {
    const { page } = await visitLoadedPage("/#/access");
    const countBefore = await countTokens();
    const first = await delayResponses(page, "/auth/tokens");
    const create = await fillInNewToken(page);
    await create.dblclick();
    await dialogOf(page).getByLabel("Name").press("Enter");
    await dialogOf(page).getByText("Waiting for a response").waitFor();
    expect(await create.getAttribute("aria-disabled")).toBe("true");
    await dialogOf(page).getByLabel("Name").press("Enter");
    first.release();
    await dialogOf(page).getByText("shown only once").waitFor();
    expect([first.countChanges(), await countTokens()]).toEqual([1, countBefore + 1]);
    await dialogOf(page).getByRole("button", { name: "Close" }).click();
    await dialogOf(page).waitFor({ state: "hidden" });
    await page.unroute("**/auth/tokens");

    for (const leave of ["Cancel", "Escape", "Back"]) {
      const waiting = await delayResponses(page, "/auth/tokens");
      // "Back" returns to this view.
      await showView(page, "/license");
      await showView(page, "/access");
      await (await fillInNewToken(page, { ...NEW_TOKEN, Name: `${NEW_TOKEN.Name}, ${leave}` })).click();
      await expect.poll(waiting.countChanges).toBe(1);
      if (leave === "Back") await page.goBack();
      else if (leave === "Escape") await page.keyboard.press("Escape");
      else await dialogOf(page).getByRole("button", { name: "Cancel" }).click();
      await dialogOf(page).waitFor({ state: "hidden" });
      waiting.release();
      const reported = page.getByRole("alertdialog");
      await reported.getByText("The form was closed, but the change was already sent").waitFor();
      await reported.getByText("shown only once").waitFor();
      await reported.getByRole("button", { name: "Close" }).click();
      await reported.waitFor({ state: "hidden" });
      await page.unroute("**/auth/tokens");
    }
    // One token of the first form, and one of each of the three closed forms.
    expect(await countTokens()).toBe(countBefore + 4);
  },
);

withSeedData("a broken response is shown with the request id, and the form keeps its input", async () => {
  const { page } = await visitLoadedPage("/#/access");
  const create = await fillInNewToken(page);
  /** The text that the form shows, and the broken response. */
  const brokenResponses: [string, (route: Route) => Promise<void>][] = [
    ["Can't reach the service", (route) => route.abort("connectionreset")],
    [
      "an unexpected response",
      (route) => route.fulfill({ status: 200, contentType: "text/html", body: "<p>Proxy</p>" }),
    ],
    [
      "an unexpected response",
      (route) => route.fulfill({ status: 201, contentType: "application/json", body: '{"tok' }),
    ],
    ["an unexpected response", (route) => route.fulfill({ status: 502, contentType: "application/json", body: "{}" })],
  ];
  for (const [errorText, answer] of brokenResponses) {
    let id = "";
    await page.route("**/auth/tokens", (route) => {
      if (route.request().method() === "GET") return route.fallback();
      id = route.request().headers()["x-request-id"] ?? "";
      return answer(route);
    });
    await create.click();
    await expect.poll(() => id).toMatch(/^[0-9a-f]{32}$/);
    await dialogOf(page).getByText(errorText).waitFor();
    await dialogOf(page).getByText(`Request ID: ${id}`).waitFor();
    expect(await dialogOf(page).getByLabel("Name").inputValue()).toBe(NEW_TOKEN.Name);
    await page.unroute("**/auth/tokens");
  }
  // A rate-limited request: the form shows when it sends the request again. Closing the form cancels that.
  let rateLimitedRequests = 0;
  await page.route("**/auth/tokens", (route) => {
    if (route.request().method() === "GET") return route.fallback();
    rateLimitedRequests++;
    const json = {
      type: "about:blank",
      title: "Too many",
      status: 429,
      detail: "Wait.",
      instance: "",
      code: "rateLimited",
    };
    return route.fulfill({
      status: 429,
      headers: { "Retry-After": "90" },
      contentType: "application/problem+json",
      json,
    });
  });
  const countBefore = await countTokens();
  await create.click();
  await dialogOf(page).getByText("It continues automatically at").waitFor();
  await dialogOf(page).getByRole("button", { name: "Cancel" }).click();
  await dialogOf(page).waitFor({ state: "hidden" });
  expect([rateLimitedRequests, await dialogOf(page).count(), await countTokens()]).toEqual([1, 0, countBefore]);
  requireReload();
});

withSeedData("two users who edit one rule see each other's changes, and neither change is lost", async () => {
  // A unique name, so that a rule of a failed run does not interfere.
  const name = `Of two, ${randomUUID()}`;
  const [myName, theirName] = [`${name}, mine`, `${name}, theirs`];
  const rule = { name, alertType: "expired", recipients: ["one@acme.example"] };
  const { id } = (await service.admin("POST", "/alerts/rules", rule)).body;
  const [mine, theirs] = [await visitLoadedPage("/#/alerts"), await openInNewTab("/#/alerts")];
  const inputs = [
    [mine, { Name: myName, Event: "Asset expires soon" }],
    [theirs, { Name: theirName, Event: "Compliance violation", Vault: "kv-copies" }],
  ] as const;
  for (const [{ page }, values] of inputs) {
    await page.bringToFront();
    await page.getByRole("button", { name: `Edit: ${name}` }).click();
    await fillIn(dialogOf(page), values);
  }
  const save = ({ page }: typeof mine) =>
    dialogOf(page).getByRole("button", { name: "Save rule", exact: true }).click();
  await save(theirs);
  await dialogOf(theirs.page).waitFor({ state: "hidden" });
  await theirs.page.close();
  await save(mine);
  await dialogOf(mine.page).getByRole("button", { name: "Reload" }).click();
  // Fields that only the other user changed show the new value. Fields that both changed show both values.
  await dialogOf(mine.page).getByText(`Changed by another user to: ${theirName}`).waitFor();
  await dialogOf(mine.page).getByText("Changed by another user to: Compliance violation").waitFor();
  expect(await fieldOf(dialogOf(mine.page), "Vault").inputValue()).toBe("kv-copies");
  expect(await fieldOf(dialogOf(mine.page), "Name").inputValue()).toBe(myName);
  await save(mine);
  await dialogOf(mine.page).waitFor({ state: "hidden" });
  const { body } = await service.admin("GET", `/alerts/rules/${id}`);
  expect(body).toMatchObject({ name: myName, alertType: "expiration", filters: { vault: "kv-copies" } });
});

withSeedData("a form closes after its change, even if the refresh of the lists is rate limited", async () => {
  const { page } = await visitLoadedPage("/#/access");
  const countBefore = await countTokens();
  // Names of active tokens must be unique.
  const values = { ...NEW_TOKEN, Name: `${NEW_TOKEN.Name}, then many calls` };
  await (await fillInNewToken(page, values)).click();
  await dialogOf(page).getByRole("button", { name: "Close" }).click();
  await page.route("**/auth/tokens?*", (route) =>
    route.fulfill({ status: 429, headers: { "Retry-After": "90" }, json: { title: "Too many", status: 429 } }),
  );
  await page.getByRole("button", { name: `Revoke: ${values.Name}` }).click();
  await dialogOf(page).getByRole("button", { name: "Revoke token", exact: true }).click();
  await page.getByText("It continues automatically at").first().waitFor();
  await dialogOf(page).waitFor({ state: "hidden" });
  expect(await countTokens()).toBe(countBefore);
  requireReload();
});

withSeedData(
  "a row's form stays open when the screen becomes narrow, and the table becomes a list after it closes",
  async () => {
    const { page } = await visitLoadedPage("/#/access");
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.getByRole("button", { name: "Reset password: user" }).click();
    await fillIn(dialogOf(page), { "New password": PASSWORD });
    await page.setViewportSize({ width: 400, height: 900 });
    expect(await page.evaluate("matchMedia('(max-width: 767px)').matches")).toBe(true);
    expect(await fieldOf(dialogOf(page), "New password").inputValue()).toBe(PASSWORD);
    await dialogOf(page).getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("list", { name: "Users" }).waitFor();
    expect(await page.getByRole("table", { name: "Users" }).count()).toBe(0);
  },
);
