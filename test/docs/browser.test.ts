/**
 * Tests the documentation pages in a browser, and sends the examples of /openapi.json to the simulated company of `npm start --
 * --pro`.
 */
import type { BrowserContext, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { configureTenant } from "../../infra/local/first-tenant.ts";
import { configureSingleSignOn } from "../../infra/local/single-sign-on.ts";
import type { Document, Operation } from "../../shared/platform/http/openapi-document.ts";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { partOfAcme } from "./part-of-acme.ts";

const isWithoutBrowser = skipWithout("browser");
const withBrowser = test.skipIf(isWithoutBrowser);

let service: Service;
let token: string;
let context: BrowserContext | undefined;
let document: Document;
beforeAll(async () => {
  const licensed = {
    company: partOfAcme(),
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: "http://localhost:7071" },
  };
  // The tests of the examples need no browser.
  [service, context] = await Promise.all([Service.start(licensed), isWithoutBrowser ? undefined : openBrowser()]);
  [token, document] = [await service.signIn(ADMIN), (await service.call("GET", "/openapi.json")).body];
  await Promise.all([
    service.scan(),
    service.admin("POST", "/api/automation/rotation/discover"),
    configureSingleSignOn(service.url, ADMIN, service.cloud, "oidc"),
    configureTenant(service.url, ADMIN, service.cloud),
  ]);
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});

/** Opens a page and records its requests and errors. */
async function open(address: string): Promise<{ page: Page; requested: string[]; complaints: string[] }> {
  const page = await context!.newPage();
  page.setDefaultTimeout(120_000);
  const [requested, complaints]: [string[], string[]] = [[], []];
  page.on("request", (request) => requested.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(service.url + address);
  return { page, requested, complaints };
}

/** Checks that the page sent no request outside of the service and followed its own content security policy. */
function staysHere({ requested, complaints }: { requested: string[]; complaints: string[] }): void {
  expect(requested.filter((url) => !url.startsWith(`${service.url}/`) && !/^(data|blob):/.test(url))).toEqual([]);
  expect(complaints).toEqual([]);
}

/** Swagger UI renders only the visible part of a long list. */
async function scrollTo(page: Page, wanted: Locator): Promise<void> {
  const isThere = async () => {
    if (await wanted.isVisible()) return true;
    await page.mouse.wheel(0, 400);
    return false;
  };
  await vi.waitUntil(isThere, { timeout: 150_000, interval: 100 });
}

withBrowser(
  "in /docs one authorizes with the token, or Bearer and it, tries a call out and sees its answer",
  async () => {
    const opened = await open("/docs");
    const { page } = opened;
    const dialog = page.locator(".auth-container", { hasText: "bearerAuth" });
    const me = page.locator("#operations-Authentication-getMe");
    const answer = me.locator(".live-responses-table .response");
    const press = (within: Locator, name: string) => within.getByRole("button", { name }).click();
    const authorize = async (typed: string) => {
      await page.getByRole("button", { name: "Authorize" }).first().click();
      if ((await dialog.getByRole("textbox").count()) === 0) await press(dialog, "Remove authorization");
      await dialog.getByRole("textbox").fill(typed);
      await press(dialog, "Apply credentials");
      await press(dialog, "Close");
    };
    const answers = async () => {
      await press(me, "Execute");
      await answer.waitFor();
      expect(await answer.locator(".response-col_status").textContent()).toBe("200");
      expect(await answer.locator(".response-col_description").textContent()).toContain('"username": "admin"');
      await press(me, "Clear");
      await answer.waitFor({ state: "detached" });
    };
    await scrollTo(page, me);
    // From here on with this operation only, because Swagger UI renders all operations again after each action, which takes
    // seconds.
    await page.evaluate(
      (alone) => (window as unknown as { ui: SwaggerUi }).ui.specActions.updateSpec(alone),
      JSON.stringify(onlyOf("/auth/me", "get")),
    );
    await expect.poll(() => page.locator(".opblock").count()).toBe(1);
    await authorize(`Bearer ${token}`);
    await me.locator(".opblock-summary-control").click();
    await press(me, "Try it out");
    await answers();
    await authorize(token);
    await answers();

    staysHere(opened);
    await page.close();
  },
);

withBrowser("/redoc shows the description, without the internet", async () => {
  const opened = await open("/redoc");
  const { page } = opened;
  await page.getByRole("heading", { name: /Credential and Secret Lifecycle Service/ }).waitFor();
  await page.getByRole("heading", { name: "Discovery" }).first().waitFor();
  await page.getByRole("heading", { name: "Start a discovery scan" }).first().waitFor();
  staysHere(opened);
  await page.close();
});

interface Sent {
  operationId: string;
  status: number;
  location: string | null;
}

/** Operations that succeed only after an action of a person, a redirected browser or another system. */
const NEED_MORE: Record<string, { status: number; needs: string }> = {
  signIn: { status: 401, needs: "the person's password" },
  changePassword: { status: 400, needs: "the person's password" },
  discoverSso: { status: 400, needs: "an identity provider at a public address" },
  ssoCallback: { status: 400, needs: "what a provider gives a browser" },
  ssoSamlCallback: { status: 400, needs: "what a provider gives a browser" },
};

/** Every operation. The one that ends the session of the others is last. */
const operations = () =>
  Object.entries(document.paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    )
    .sort((a, b) => Number(a.operation.operationId === "signOut") - Number(b.operation.operationId === "signOut"));

function exampleOf(path: string, { parameters = [], requestBody }: Operation) {
  const query = new URLSearchParams();
  let address = path;
  for (const { name, in: where, example } of parameters) {
    if (where === "path") address = address.replace(`{${name}}`, encodeURIComponent(String(example)));
    else if (where === "query" && example !== undefined) query.set(name, String(example));
  }
  const [[type, media] = []] = Object.entries(requestBody?.content ?? {});
  const headers: Record<string, string> = type === undefined ? {} : { "Content-Type": type };
  return { address: query.size > 0 ? `${address}?${query}` : address, body: media?.example, headers };
}

/** Answers that are neither a success, nor a 404 for an unknown id, nor an exception listed above. */
const badIn = (sent: readonly Sent[]): Sent[] =>
  sent.filter(({ operationId, status }) => {
    const { status: expected = undefined } = NEED_MORE[operationId] ?? {};
    return status >= 400 && status !== 404 && status !== expected;
  });

/** State that trying out the examples must not change. */
async function state() {
  const [settings, users, rules, sso, owners, subscriptions] = await Promise.all(
    ["/api/settings/all", "/auth/users", "/alerts/rules", "/auth/sso/status", "/alerts/owners", "/subscriptions"].map(
      async (path) => (await service.admin("GET", path)).body,
    ),
  );
  const accounts = users.items.map(({ id, role, state }: Record<string, string>) => ({ id, role, state }));
  const watched = subscriptions.items.map(({ subscriptionId, watched }: Record<string, string>) => [
    subscriptionId,
    watched,
  ]);
  return { settings, accounts, rules: rules.total, sso, owners: owners.items, watched };
}

/** Created resources are addressed by Location. Runs remain. */
async function removeMade(sent: Sent[]): Promise<number> {
  const made = sent.filter(({ status, location }) => status === 201 && location !== null);
  const removed = await Promise.all(
    made.map(({ location }) => service.admin("DELETE", location!).catch(() => undefined)),
  );
  return removed.filter((answer) => answer?.status === 200).length;
}

test("every example request is answered as described and changes nothing else", async () => {
  const before = await state();
  const own = await service.signIn(ADMIN);
  const sent: Sent[] = [];
  for (const { path, method, operation } of operations()) {
    const { address, body, headers } = exampleOf(path, operation);
    const form = headers["Content-Type"]?.includes("form") ? String(new URLSearchParams(body as never)) : body;
    const { status, headers: answered } = await service.call(method, address, { token: own, body: form, headers });
    sent.push({ operationId: operation.operationId, status, location: answered.get("location") });
  }
  expect(await removeMade(sent)).toBeGreaterThan(5);
  expect(badIn(sent)).toEqual([]);
  expect(sent.filter(({ status }) => status < 400).length).toBeGreaterThan(sent.length / 2);
  expect(await state()).toEqual(before);
});

/** The Swagger UI object of the page. */
interface SwaggerUi {
  getConfigs(): { tryItOutEnabled: boolean };
  preauthorizeApiKey(scheme: string, token: string): void;
  specActions: { updateSpec(document: string): void };
  specSelectors: {
    requestFor(path: string, method: string): unknown;
    responseFor(path: string, method: string): { toJS(): { status?: number; headers?: object } } | undefined;
  };
}

/** Addresses for browser navigation. A script can't follow them to another site. */
const BY_ADDRESS = new Set(["ssoLogin", "ssoCallback", "ssoSamlCallback"]);

/** Tests every operation if a campaign runs, otherwise a sample. */
function someOperations() {
  const all = operations().filter(({ operation }) => !BY_ADDRESS.has(operation.operationId));
  if (IS_CAMPAIGN) return all;
  // Every 24th operation. Signing out stays last.
  return all.filter((_, at) => at % 24 === SEED % 24);
}

withBrowser("a request that /docs prefills, sent unchanged, succeeds and changes nothing else", async () => {
  const before = await state();
  const own = await service.signIn(ADMIN);
  const all = someOperations();
  // Rendering all operations would take seconds.
  const { path, method } = all[0]!;
  await context!.route("**/openapi.json", (route) => route.fulfill({ json: onlyOf(path, method.toLowerCase()) }));
  const { page } = await open("/docs");
  await page.locator(".opblock-tag").first().waitFor();
  await context!.unroute("**/openapi.json");
  const sent: Sent[] = [];
  for (const { path, operation, ...of } of all) {
    const { operationId } = operation;
    const method = of.method.toLowerCase();
    const alone = JSON.stringify(onlyOf(path, method));
    const answer = await page.evaluate(tryOut, { own, alone, path, method, operationId });
    sent.push({ operationId, ...answer });
  }
  expect(sent.length).toBeGreaterThan(5);
  await removeMade(sent);
  expect(badIn(sent)).toEqual([]);
  expect(await state()).toEqual(before);
  await page.close();
});

/** The description of one operation with the schemas it references. With all operations, each page takes seconds. */
function onlyOf(path: string, method: string): object {
  const whole = document as unknown as { components: Record<string, Record<string, unknown>> };
  const operation = document.paths[path]![method];
  const components: Record<string, Record<string, unknown>> = { securitySchemes: whole.components.securitySchemes! };
  const take = (part: unknown): void => {
    for (const [, kind, name] of JSON.stringify(part).matchAll(/"#\/components\/(\w+)\/([^"]+)"/g)) {
      if (components[kind!]?.[name!] !== undefined) continue;
      components[kind!] = { ...components[kind!], [name!]: whole.components[kind!]![name!] };
      take(whole.components[kind!]![name!]);
    }
  };
  take(operation);
  return { ...document, components, paths: { [path]: { [method]: operation } } };
}

/** Presses "Execute" of the only operation in the page and returns the shown result. */
async function tryOut(of: { own: string; alone: string; path: string; method: string; operationId: string }) {
  const { ui } = window as unknown as { ui: SwaggerUi };
  const until = async <T>(look: () => T | undefined | null): Promise<T> => {
    for (const end = Date.now() + 150_000; Date.now() < end; ) {
      const found = look();
      if (found !== undefined && found !== null) return found;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`Swagger UI did not do ${of.method} ${of.path}`);
  };
  ui.getConfigs().tryItOutEnabled = true;
  // Removes the rendering of the previous operation.
  ui.specActions.updateSpec(JSON.stringify({ ...JSON.parse(of.alone), paths: {} }));
  await until(() => (globalThis.document.querySelector(".opblock") === null ? true : undefined));
  ui.specActions.updateSpec(of.alone);
  ui.preauthorizeApiKey("bearerAuth", of.own);
  const block = await until(() => globalThis.document.querySelector(`.opblock[id$="-${of.operationId}"]`));
  const execute = () => block.querySelector<HTMLElement>("button.execute");
  if (!execute()) block.querySelector<HTMLElement>(".opblock-summary-control")!.click();
  await until(execute);
  const { status, headers = {} } = await until(() => {
    // Swagger UI fills in values shortly after rendering, and sends nothing before.
    if (!ui.specSelectors.requestFor(of.path, of.method)) execute()?.click();
    const answer = ui.specSelectors.responseFor(of.path, of.method)?.toJS();
    return answer?.status === undefined ? undefined : answer;
  });
  return { status: status!, location: (headers as { location?: string }).location ?? null };
}
