import type { BrowserContext, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, vi } from "vitest";
import { browserTests, openBrowser } from "../support/browser.ts";
import { ADMIN, Service } from "../support/service.ts";

const withBrowser = browserTests("the tests of /docs and /redoc");

let service: Service;
let token: string;
let context: BrowserContext;
beforeAll(async () => {
  [service, context] = await Promise.all([Service.start(), openBrowser()]);
  token = await service.signIn(ADMIN);
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});

/** A page, with all it asked for and all it complained of. */
async function open(address: string): Promise<{ page: Page; requested: string[]; complaints: string[] }> {
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const [requested, complaints]: [string[], string[]] = [[], []];
  page.on("request", (request) => requested.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(service.url + address);
  return { page, requested, complaints };
}

/** Nothing was asked for outside of the service, and the page's own policy was kept. */
function staysHere({ requested, complaints }: { requested: string[]; complaints: string[] }): void {
  expect(requested.filter((url) => !url.startsWith(`${service.url}/`) && !/^(data|blob):/.test(url))).toEqual([]);
  expect(complaints).toEqual([]);
}

/** Swagger UI draws of a long list only what is on the screen. */
async function scrollTo(page: Page, wanted: Locator): Promise<void> {
  const isThere = async () => {
    if (await wanted.isVisible()) return true;
    await page.mouse.wheel(0, 400);
    return false;
  };
  await vi.waitUntil(isThere, { timeout: 30_000, interval: 100 });
}

withBrowser.each([
  ["Bearer <token>", (bare: string) => `Bearer ${bare}`],
  ["<token>", (bare: string) => bare],
])("in /docs one authorizes with %s, tries a call out and sees its answer", async (_what, typed) => {
  const opened = await open("/docs");
  const { page } = opened;
  await page.getByRole("button", { name: "Authorize" }).first().click();
  const dialog = page.locator(".auth-container", { hasText: "bearerAuth" });
  await dialog.getByRole("textbox").fill(typed(token));
  await dialog.getByRole("button", { name: "Apply credentials" }).click();
  await dialog.getByRole("button", { name: "Close" }).click();

  const me = page.locator("#operations-Authentication-getMe");
  await scrollTo(page, me);
  await me.locator(".opblock-summary-control").click();
  await me.getByRole("button", { name: "Try it out" }).click();
  await me.getByRole("button", { name: "Execute" }).click();
  const answer = me.locator(".live-responses-table .response");
  await answer.waitFor();
  expect(await answer.locator(".response-col_status").textContent()).toBe("200");
  expect(await answer.locator(".response-col_description").textContent()).toContain('"username": "admin"');

  staysHere(opened);
  await page.close();
});

withBrowser("/redoc shows the description, without the internet", async () => {
  const opened = await open("/redoc");
  const { page } = opened;
  await page.getByRole("heading", { name: /Credential and Secret Lifecycle Service/ }).waitFor();
  await page.getByRole("heading", { name: "Discovery" }).first().waitFor();
  await page.getByRole("heading", { name: "Start a discovery scan" }).first().waitFor();
  staysHere(opened);
  await page.close();
});
