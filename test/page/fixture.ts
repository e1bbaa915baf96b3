/** The company, service and browser that all page tests share. Each other file contains the tests of one subject. */
import type { BrowserContext, JSHandle, Page, Request } from "playwright-core";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createOffers, type Offers } from "./permissions.ts";
import { COMPANY, type Planted, plant } from "./seed-data.ts";

/** Every test of the page uses it: the hooks of this file run as soon as one test is not skipped. */
export const withBrowser = test.skipIf(skipWithout("browser"));
export const HOME = process.env.PAGE_COMPANY ?? COMPANY;

/** For tests that need the seed data, which only the default company has. */
export const withPlanted = HOME === COMPANY ? withBrowser : test.skip;

export let service: Service;
export let context: BrowserContext;
export let offers: Offers;
export let planted: Planted;
beforeAll(async () => {
  const licensed = { company: HOME as Company, env: { LICENSE_KEY: await licence() } };
  [service, context] = await Promise.all([Service.start(licensed), openBrowser()]);
  await context.addInitScript(stopTurning);
  await service.signIn(ADMIN);
  offers = createOffers((await service.admin("GET", "/openapi.json")).body);
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  if (HOME === COMPANY) planted = await plant(service);
  const { body } = await service.admin("POST", "/api/assets/dependencies/discover");
  const isRead = async () => {
    const run = await service.admin("GET", `/api/assets/dependencies/runs/${body.runId}`);
    return !["queued", "running"].includes(run.body.status);
  };
  await vi.waitUntil(isRead, { timeout: 150_000, interval: 200 });
});

/** Stops spinners, which the browser would otherwise render 60 times a second even with reduced motion. */
function stopTurning(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("[role=progressbar] * { animation: none !important; }");
  document.adoptedStyleSheets.push(sheet);
}

/** Tests share the browser's session, so most need no sign-in of their own. */
beforeEach(async ({ task }) => {
  if (task.name.startsWith("a person signs in")) await context.clearCookies();
  else if ((await context.cookies()).length === 0) await signInByTheForm();
});
async function signInByTheForm(): Promise<void> {
  const opened = await open("/");
  await signIn(opened.page);
  await opened.page.getByRole("heading", { name: "Overview" }).waitFor();
  keep(opened);
}

/** A failed test must not leave its pages and its user to the next test or to its own retry. */
afterEach(async ({ task }) => {
  if (task.result?.state !== "fail") return await parkPages();
  for (const page of context.pages().slice(1)) {
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await page.close();
  }
  await context.clearCookies();
  person = ADMIN.username;
});

afterAll(async () => {
  await context?.close();
  await service?.stop();
});

interface Opened {
  page: Page;
  /** URLs that the page requested. */
  requested: string[];
  /** Completed requests for the page's own files. */
  files: Request[];
  /** Errors and warnings of the browser, including violations of the content security policy. */
  complaints: string[];
}

/** Loads the page in a new tab. Tests that don't need a fresh load use `visit`. */
export async function open(address: string, host = service.url): Promise<Opened> {
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const [requested, complaints]: [string[], string[]] = [[], []];
  const files: Request[] = [];
  page.on("requestfinished", (request) => {
    if (request.url().includes("/page/")) files.push(request);
  });
  page.on("response", (response) => {
    if (response.status() >= 400)
      void response.text().then(
        (text) => complaints.push(`${response.url()}: ${text}`),
        () => undefined,
      );
  });
  page.on("request", (request) => requested.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(host + address);
  return { page, requested, files, complaints };
}

const TIMEOUT_MS = 120_000;
const VIEWPORT = { width: 1280, height: 720 };
/** An address without a view, where the page makes no API calls. */
const NOWHERE = "/nowhere";

/** The signed-in user. */
let person: string = ADMIN.username;
/** The loaded page of each host, with its user. Undefined: the page must be reloaded. */
const pages = new Map<string, Opened & { of: string | undefined }>();

/** Keeps a page loaded for later visits to its host. */
export function keep(opened: Opened, host = service.url): void {
  pages.set(host, { ...opened, of: person });
}

/** Opens an address in the page that is already loaded, because a load takes ten times the CPU time of a view. The page starts
 * without cached responses, forms, theme or errors of earlier tests. A test that leaves state that only a reload removes, such as a
 * notice, calls `requireReload`.
 */
export async function visit(address: string, host = service.url): Promise<Opened> {
  const opened = pages.get(host);
  if (!opened || opened.page.isClosed()) {
    const fresh = await open(address, host);
    keep(fresh, host);
    return fresh;
  }
  const { page, requested, files, complaints } = opened;
  // The browser renders a background tab only once a second.
  await page.bringToFront();
  await show(page, NOWHERE);
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.setViewportSize(VIEWPORT);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.evaluate("localStorage.clear(); sessionStorage.clear()");
  if (opened.of === person) await clearCache(page);
  else {
    await page.reload();
    await page.locator("main h1").waitFor();
    opened.of = person;
  }
  for (const list of [requested, files, complaints]) list.length = 0;
  await page.evaluate((hash) => {
    location.hash = hash;
  }, address.replace(/^\/#?/, "") || "/");
  return opened;
}

/** Makes the next visit reload the page. */
export function requireReload(): void {
  pages.get(service.url)!.of = undefined;
}

/** Drops cached responses that the current view does not use. */
async function clearCache(page: Page): Promise<void> {
  const client = await clientOf(page);
  await client.evaluate((queries) => {
    queries.removeQueries({ type: "inactive" });
    queries.getMutationCache().clear();
  });
}

/** Moves all loaded pages to an address without API calls. */
async function parkPages(): Promise<void> {
  for (const { page } of pages.values()) {
    if (page.isClosed()) continue;
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await show(page, NOWHERE);
  }
}

/** Returns the page's query client, found through React's internal tree. */
export const clientOf = (page: Page): Promise<JSHandle> =>
  page.evaluateHandle(() => {
    // biome-ignore lint/suspicious/noExplicitAny: React's internal tree
    const root = document.getElementById("page") as any;
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const isClient = (fiber: any) => fiber.memoizedProps?.client?.getQueryCache !== undefined;
    let fiber = root[Object.keys(root).find((key) => key.startsWith("__reactContainer"))!];
    while (fiber && !isClient(fiber)) fiber = fiber.child;
    return fiber.memoizedProps.client;
  });

export async function signIn(page: Page): Promise<void> {
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Returns the paths of the API calls among the requested URLs. */
export const callsAmong = (requested: string[]): string[] =>
  requested.map((url) => new URL(url).pathname).filter((path) => path !== "/" && !path.startsWith("/page/"));

/** Opens a view through the address, without a reload, and waits for its heading. */
export async function go(page: Page, view: string, heading: string): Promise<void> {
  await page.evaluate((hash) => {
    (globalThis as unknown as { location: { hash: string } }).location.hash = hash;
  }, view);
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

export const isLoaded = (page: Page) => expect.poll(() => page.getByText("Loading", { exact: true }).count()).toBe(0);

/** Opens another view and waits until it replaces the previous one. */
export async function show(page: Page, view: string): Promise<void> {
  await page.evaluate((to) => {
    if (location.hash === `#${to}`) return;
    for (const heading of document.querySelectorAll("h1")) heading.dataset.before = "";
    location.hash = to;
  }, view);
  await page.locator("main h1:not([data-before])").waitFor();
}

export async function enter(username: string, password: string): Promise<void> {
  await context.clearCookies();
  const headers = { Origin: service.url };
  const data = { username, password, session: true };
  const answer = await context.request.post(`${service.url}/auth/login`, { headers, data });
  expect(answer.status()).toBe(200);
  person = username;
}

/** Returns an address of each view. Views of one object use the seed data. A test compares the list with `views.ts`. */
export const addresses = (): string[] => [
  ...offers.views.map(({ path }) => path),
  ...Object.values(planted),
  "/inventory/kv-shop.secret.db",
  "/dependencies/kv-shop.secret.db",
];

/** Returns the operation that a view needs, from `views.ts`. */
export function needsOf(address: string): string {
  const isOf = (path: string) => new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`).test(address);
  const found = offers.routes.find(({ path }) => path === address) ?? offers.routes.find(({ path }) => isOf(path));
  if (!found) throw new Error(`The page has no view at ${address}.`);
  return found.needs;
}

/** Waits until the view shows no spinner. */
export const isDrawn = (page: Page, view: string) =>
  expect.poll(() => page.locator("main [role=progressbar]").count(), { message: view }).toBe(0);

/** Returns the operations of the view's buttons, without duplicates. */
export async function operationsOf(page: Page): Promise<string[]> {
  const buttons = page.locator("[data-operation]");
  const names = await buttons.evaluateAll((all) => all.map((button) => button.getAttribute("data-operation")!));
  return [...new Set(names)].sort();
}
