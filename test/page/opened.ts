/** One company, service and browser, which the tests of the page share: each file beside this one has those of a subject. */
import type { BrowserContext, Page, Request } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { browserTests, openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createOffers, type Offers } from "./offers.ts";
import { COMPANY, type Planted, plant } from "./planted.ts";

export const withBrowser = browserTests("the tests of the page");
export const HOME = process.env.PAGE_COMPANY ?? COMPANY;

/** What looks at the planted things, which another company has not. */
export const withPlanted = HOME === COMPANY ? withBrowser : test.skip;

export let service: Service;
export let context: BrowserContext;
export let offers: Offers;
export let planted: Planted;
beforeAll(async () => {
  const licensed = { company: HOME as Company, env: { LICENSE_KEY: await licence() } };
  [service, context] = await Promise.all([Service.start(licensed), openBrowser()]);
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

/** What is open to nobody needs no sign-in of its own: the session is the browser's. */
beforeEach(async ({ task }) => {
  if (task.name.startsWith("a person signs in")) await context.clearCookies();
  else if ((await context.cookies()).length === 0) await signInByTheForm();
});
async function signInByTheForm(): Promise<void> {
  const { page } = await open("/");
  await signIn(page);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.close();
}

/** What failed leaves the next one, and its own second try, neither its pages nor whom it signed in. */
afterEach(async ({ task }) => {
  if (task.result?.state !== "fail") return;
  for (const page of context.pages().slice(1)) {
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await page.close();
  }
  await context.clearCookies();
});

afterAll(async () => {
  await context?.close();
  await service?.stop();
});

interface Opened {
  page: Page;
  /** What it asked for. */
  requested: string[];
  /** The requests for files of the page that are over. */
  files: Request[];
  /** What the browser complained of: errors, and what the page's policy refuses. */
  complaints: string[];
}

export async function open(address: string, host = service.url): Promise<Opened> {
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
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

export async function signIn(page: Page): Promise<void> {
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** The calls of the API among the addresses that were asked for. */
export const callsAmong = (requested: string[]): string[] =>
  requested.map((url) => new URL(url).pathname).filter((path) => path !== "/" && !path.startsWith("/page/"));

/** By the address bar, as a link or the navigation does it: the page is not loaded again. */
export async function go(page: Page, view: string, heading: string): Promise<void> {
  await page.evaluate((hash) => {
    (globalThis as unknown as { location: { hash: string } }).location.hash = hash;
  }, view);
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
}

export const isLoaded = (page: Page) => expect.poll(() => page.getByText("Loading", { exact: true }).count()).toBe(0);

/** Goes to another view of the page, and waits until it is there in place of the one before. */
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
}

/** Where each view is found, those of one thing with something planted; a test holds it to the page's own list. */
export const addresses = (): string[] => [
  ...offers.views.map(({ path }) => path),
  ...Object.values(planted),
  "/inventory/kv-shop.secret.db",
  "/dependencies/kv-shop.secret.db",
];

/** What a view needs, by the page's own list. */
export function needsOf(address: string): string {
  const isOf = (path: string) => new RegExp(`^${path.replaceAll(/:\w+/g, "[^/]+")}$`).test(address);
  const found = offers.routes.find(({ path }) => path === address) ?? offers.routes.find(({ path }) => isOf(path));
  if (!found) throw new Error(`The page has no view at ${address}.`);
  return found.needs;
}

/** Nothing is waited for any more. */
export const isDrawn = (page: Page, view: string) =>
  expect.poll(() => page.getByRole("main").getByRole("progressbar").count(), { message: view }).toBe(0);

/** The operations that are offered by buttons, each once. */
export async function operationsOf(page: Page): Promise<string[]> {
  const buttons = page.locator("[data-operation]");
  const names = await buttons.evaluateAll((all) => all.map((button) => button.getAttribute("data-operation")!));
  return [...new Set(names)].sort();
}
