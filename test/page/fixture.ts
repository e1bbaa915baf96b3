/**
 * The running service and the browser that the tests of the web page share, and helpers to open views. page.test.ts imports the
 * files with the tests. Views of the page have addresses such as `/#/inventory`.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { BrowserContext, JSHandle, Page, Request } from "playwright-core";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { type Permissions, readPermissions } from "./permissions.ts";
import { COMPANY, createSeedData, type SeedAddresses } from "./seed-data.ts";

/** Declares a test of the page. The test is skipped on a machine without a browser. */
export const withBrowser = test.skipIf(skipWithout("browser"));
/**
 * The simulated company that the service monitors. `PAGE_COMPANY=acme npx vitest run test/page` selects another one, whose views
 * have more data.
 */
export const TESTED_COMPANY = process.env.PAGE_COMPANY ?? COMPANY;

/** Declares a test that needs the seed data (seed-data.ts), which only the default company has. */
export const withSeedData = TESTED_COMPANY === COMPANY ? withBrowser : test.skip;

export let service: Service;
export let context: BrowserContext;
export let permissions: Permissions;
/** Addresses of the views of objects that createSeedData created. */
export let seedAddresses: SeedAddresses;
beforeAll(async () => {
  const licensed = { company: TESTED_COMPANY as Company, env: { LICENSE_KEY: await licence() } };
  [service, context] = await Promise.all([Service.start(licensed), openBrowser()]);
  await context.addInitScript(stopSpinners);
  await service.signIn(ADMIN);
  permissions = readPermissions((await service.admin("GET", "/openapi.json")).body);
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  if (TESTED_COMPANY === COMPANY) seedAddresses = await createSeedData(service);
  const { body } = await service.admin("POST", "/api/assets/dependencies/discover");
  const isDiscovered = async () => {
    const run = await service.admin("GET", `/api/assets/dependencies/runs/${body.runId}`);
    return !["queued", "running"].includes(run.body.status);
  };
  await vi.waitUntil(isDiscovered, { timeout: 150_000, interval: 200 });
});

/** Stops spinners, which the browser would otherwise render 60 times a second even with reduced motion. */
function stopSpinners(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("[role=progressbar] * { animation: none !important; }");
  document.adoptedStyleSheets.push(sheet);
}

/**
 * Signs in before a test if no session is left. Tests share the browser's session. Tests of signing in, whose titles start with
 * "a person signs in", start without one.
 */
beforeEach(async ({ task }) => {
  if (task.name.startsWith("a person signs in")) await context.clearCookies();
  else if ((await context.cookies()).length === 0) await signInAgain();
});
async function signInAgain(): Promise<void> {
  await signInAs(ADMIN.username, ADMIN.password);
  const opened = await openInNewTab("/");
  await opened.page.getByRole("heading", { name: "Overview" }).waitFor();
  keepLoaded(opened);
}

/** After a failed test, closes its tabs and ends its session, so that they don't affect the next test or the retry. */
afterEach(async ({ task }) => {
  if (task.result?.state !== "fail") return await parkPages();
  // The first tab is the empty one with which the browser started. Tests don't use it.
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

interface OpenedPage {
  page: Page;
  /** URLs that the page requested. */
  requestedUrls: string[];
  /** Completed requests for the page's own files, whose paths start with `/page/`. */
  files: Request[];
  /** Errors and warnings of the browser, including violations of the content security policy. */
  browserErrors: string[];
}

/** Loads the page in a new tab. Tests that don't need a fresh load use `visitLoadedPage`. */
export async function openInNewTab(address: string, host = service.url): Promise<OpenedPage> {
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const [requestedUrls, browserErrors]: [string[], string[]] = [[], []];
  const files: Request[] = [];
  page.on("requestfinished", (request) => {
    if (request.url().includes("/page/")) files.push(request);
  });
  page.on("response", (response) => {
    if (response.status() >= 400)
      void response.text().then(
        (text) => browserErrors.push(`${response.url()}: ${text}`),
        () => undefined,
      );
  });
  page.on("request", (request) => requestedUrls.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) browserErrors.push(message.text());
  });
  page.on("pageerror", (error) => browserErrors.push(String(error)));
  await page.goto(host + address);
  return { page, requestedUrls, files, browserErrors };
}

const TIMEOUT_MS = 120_000;
const VIEWPORT = { width: 1280, height: 720 };
/** An address without a view, where the page makes no API calls. */
const NOWHERE = "/nowhere";

/** The signed-in user. */
let person: string = ADMIN.username;
/** The loaded page of each host, with its signed-in user. Without a user, the next visit reloads the page. */
const pages = new Map<string, OpenedPage & { user: string | undefined }>();

/** Keeps a page loaded for later visits to its host. */
export function keepLoaded(opened: OpenedPage, host = service.url): void {
  pages.set(host, { ...opened, user: person });
}

/**
 * Opens an address in the page that is already loaded, because a load takes ten times the CPU time of a view. The page starts
 * without cached responses, forms, theme or errors of earlier tests. A test that leaves state that only a reload removes, such as
 * a notice, calls `requireReload`.
 */
export async function visitLoadedPage(address: string, host = service.url): Promise<OpenedPage> {
  const opened = pages.get(host);
  if (!opened || opened.page.isClosed()) {
    const fresh = await openInNewTab(address, host);
    keepLoaded(fresh, host);
    return fresh;
  }
  const { page, requestedUrls, files, browserErrors } = opened;
  // The browser renders a background tab only once a second.
  await page.bringToFront();
  await showView(page, NOWHERE);
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.setViewportSize(VIEWPORT);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.evaluate("localStorage.clear(); sessionStorage.clear()");
  if (opened.user === person) await clearCache(page);
  else {
    await page.reload();
    await page.locator("main h1").waitFor();
    opened.user = person;
  }
  for (const list of [requestedUrls, files, browserErrors]) list.length = 0;
  await page.evaluate((hash) => {
    location.hash = hash;
  }, address.replace(/^\/#?/, "") || "/");
  return opened;
}

/** Makes the next visit reload the page. */
export function requireReload(): void {
  pages.get(service.url)!.user = undefined;
}

/** Drops cached responses that the current view does not use. */
async function clearCache(page: Page): Promise<void> {
  const client = await queryClientOf(page);
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
    await showView(page, NOWHERE);
  }
}

/** Returns the page's query client, found through React's internal tree. */
export const queryClientOf = (page: Page): Promise<JSHandle> =>
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
export const callsAmong = (requestedUrls: string[]): string[] =>
  requestedUrls.map((url) => new URL(url).pathname).filter((path) => path !== "/" && !path.startsWith("/page/"));

/** Opens a view by its path, without a reload, and waits for a heading with this text. `showView` waits for any heading. */
export async function goToView(page: Page, view: string, heading: string): Promise<void> {
  await page.evaluate((hash) => {
    (globalThis as unknown as { location: { hash: string } }).location.hash = hash;
  }, view);
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

/** Waits until the page shows no "Loading" text. */
export const waitUntilLoaded = (page: Page) =>
  expect.poll(() => page.getByText("Loading", { exact: true }).count()).toBe(0);

/** Opens another view by its path, without a reload, and waits until it has replaced the current one. */
export async function showView(page: Page, view: string): Promise<void> {
  await page.evaluate((to) => {
    if (location.hash === `#${to}`) return;
    // Marks the heading of the current view, to wait for a heading without the mark.
    for (const heading of document.querySelectorAll("h1")) heading.dataset.before = "";
    location.hash = to;
  }, view);
  await page.locator("main h1:not([data-before])").waitFor();
}

/**
 * Signs in without the form, by a session cookie, and replaces the current session. The service limits the sign-ins of one
 * address per minute, which the sign-ins after failed tests can exceed.
 */
export async function signInAs(username: string, password: string): Promise<void> {
  await context.clearCookies();
  const headers = { Origin: service.url };
  const data = { username, password, session: true };
  const post = () => context.request.post(`${service.url}/auth/login`, { headers, data });
  let answer = await post();
  while (answer.status() === 429) {
    await sleep(Number(answer.headers()["retry-after"]) * 1_000);
    answer = await post();
  }
  expect(answer.status()).toBe(200);
  person = username;
}

/**
 * Returns an address of each view. Views of one object show an object of the seed data. A test compares the list with
 * `views.ts`.
 */
export const addresses = (): string[] => [
  ...permissions.views.map(({ path }) => path),
  ...Object.values(seedAddresses),
  "/compliance/readiness",
  "/compliance/post-quantum",
  "/inventory/kv-shop.secret.db",
  "/dependencies/kv-shop.secret.db",
];

/** Returns the API operation that a user must be allowed to call to open the view, from `views.ts`. */
export function needsOf(address: string): string {
  // `/alerts/rules/:ruleId` matches `/alerts/rules/1`.
  const matches = (path: string) => new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`).test(address);
  const { routes } = permissions;
  const route = routes.find(({ path }) => path === address) ?? routes.find(({ path }) => matches(path));
  if (!route) throw new Error(`The page has no view at ${address}.`);
  return route.needs;
}

/** Waits until the view shows no spinner. */
export const waitForSpinners = (page: Page, view: string) =>
  expect.poll(() => page.locator("main [role=progressbar]").count(), { message: view }).toBe(0);

/** Returns the API operations that the view's buttons call, without duplicates. */
export async function operationsOf(page: Page): Promise<string[]> {
  const buttons = page.locator("[data-operation]");
  const names = await buttons.evaluateAll((all) => all.map((button) => button.getAttribute("data-operation")!));
  return [...new Set(names)].sort();
}
