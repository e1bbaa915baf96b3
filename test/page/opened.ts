/** One company, service and browser, which the tests of the page share: each file beside this one has those of a subject. */
import type { BrowserContext, JSHandle, Page, Request } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createOffers, type Offers } from "./offers.ts";
import { COMPANY, type Planted, plant } from "./planted.ts";

/** Every test of the page uses it: the hooks of this file run as soon as one test is not skipped. */
export const withBrowser = test.skipIf(skipWithout("browser"));
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

/** What turns while something is read would be drawn sixty times a second, on systems that want less motion as well. */
function stopTurning(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("[role=progressbar] * { animation: none !important; }");
  document.adoptedStyleSheets.push(sheet);
}

/** What is open to nobody needs no sign-in of its own: the session is the browser's. */
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

/** What failed leaves the next one, and its own second try, neither its pages nor whom it signed in. */
afterEach(async ({ task }) => {
  if (task.result?.state !== "fail") return await rest();
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
  /** What it asked for. */
  requested: string[];
  /** The requests for files of the page that are over. */
  files: Request[];
  /** What the browser complained of: errors, and what the page's policy refuses. */
  complaints: string[];
}

/** Loads the page in a tab of its own. What needs no load of its own visits. */
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
/** No view has this address, so nothing is asked for there. */
const NOWHERE = "/nowhere";

/** Who is signed in. */
let person: string = ADMIN.username;
/** Of each host the page that is loaded for all tests, and for whom; for nobody when it has to be loaded again. */
const kept = new Map<string, Opened & { of: string | undefined }>();

/** What is opened stays loaded for those that visit its host later. */
export function keep(opened: Opened, host = service.url): void {
  kept.set(host, { ...opened, of: person });
}

/**
 * Goes to an address in the page that is loaded already: a load takes ten times the processor time of a view. It begins as one does
 * that is loaded anew: with no answer, form, look or complaint of before. A test that leaves behind what only a load takes back, such as
 * a notice, says so (`isSpent`).
 */
export async function visit(address: string, host = service.url): Promise<Opened> {
  const opened = kept.get(host);
  if (!opened || opened.page.isClosed()) {
    const anew = await open(address, host);
    keep(anew, host);
    return anew;
  }
  const { page, requested, files, complaints } = opened;
  // A tab behind another is drawn once a second.
  await page.bringToFront();
  await show(page, NOWHERE);
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.setViewportSize(VIEWPORT);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.evaluate("localStorage.clear(); sessionStorage.clear()");
  if (opened.of === person) await forgetAnswers(page);
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

/** Who visits it next loads it again first. */
export function isSpent(): void {
  kept.get(service.url)!.of = undefined;
}

/** Those that nothing on the screen stands on. */
async function forgetAnswers(page: Page): Promise<void> {
  const client = await clientOf(page);
  await client.evaluate((queries) => {
    queries.removeQueries({ type: "inactive" });
    queries.getMutationCache().clear();
  });
}

/** The pages that stay loaded ask for nothing until they are visited again. */
async function rest(): Promise<void> {
  for (const { page } of kept.values()) {
    if (page.isClosed()) continue;
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await show(page, NOWHERE);
  }
}

/** What keeps the answers in the page, out of React's own tree. */
export const clientOf = (page: Page): Promise<JSHandle> =>
  page.evaluateHandle(() => {
    // biome-ignore lint/suspicious/noExplicitAny: React's own tree
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
  person = username;
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
  expect.poll(() => page.locator("main [role=progressbar]").count(), { message: view }).toBe(0);

/** The operations that are offered by buttons, each once. */
export async function operationsOf(page: Page): Promise<string[]> {
  const buttons = page.locator("[data-operation]");
  const names = await buttons.evaluateAll((all) => all.map((button) => button.getAttribute("data-operation")!));
  return [...new Set(names)].sort();
}
