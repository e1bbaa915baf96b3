/**
 * Tests the pages of the API documentation (`/docs` is Swagger UI, `/redoc` is Redoc) in a browser. Also sends every example
 * request of the OpenAPI document to a service that monitors the part of the simulated company that the examples name.
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

/** Opens a page and records the URLs of its requests, and errors and warnings of the browser. */
async function openPage(address: string): Promise<{ page: Page; requestedUrls: string[]; browserErrors: string[] }> {
  const page = await context!.newPage();
  page.setDefaultTimeout(120_000);
  const [requestedUrls, browserErrors]: [string[], string[]] = [[], []];
  page.on("request", (request) => requestedUrls.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) browserErrors.push(message.text());
  });
  page.on("pageerror", (error) => browserErrors.push(String(error)));
  await page.goto(service.url + address);
  return { page, requestedUrls, browserErrors };
}

/** Expects that the page sent requests only to the service, and that the browser reported no error. */
function expectOnlyOwnRequests(opened: { requestedUrls: string[]; browserErrors: string[] }): void {
  const isElsewhere = (url: string) => !url.startsWith(`${service.url}/`) && !/^(data|blob):/.test(url);
  expect(opened.requestedUrls.filter(isElsewhere)).toEqual([]);
  // The browser also reports violations of the content security policy.
  expect(opened.browserErrors).toEqual([]);
}

/** Scrolls until the element is visible. Swagger UI renders only the visible part of a long list. */
async function scrollTo(page: Page, element: Locator): Promise<void> {
  const isVisible = async () => {
    if (await element.isVisible()) return true;
    await page.mouse.wheel(0, 400);
    return false;
  };
  await vi.waitUntil(isVisible, { timeout: 150_000, interval: 100 });
}

withBrowser(
  "/docs sends a request with a token that was entered with or without the word Bearer, and shows the answer",
  async () => {
    const opened = await openPage("/docs");
    const { page } = opened;
    const dialog = page.locator(".auth-container", { hasText: "bearerAuth" });
    const me = page.locator("#operations-Authentication-getMe");
    const answer = me.locator(".live-responses-table .response");
    const press = (within: Locator, name: string) => within.getByRole("button", { name }).click();
    const authorize = async (input: string) => {
      await page.getByRole("button", { name: "Authorize" }).first().click();
      if ((await dialog.getByRole("textbox").count()) === 0) await press(dialog, "Remove authorization");
      await dialog.getByRole("textbox").fill(input);
      await press(dialog, "Apply credentials");
      await press(dialog, "Close");
    };
    const executeAndCheck = async () => {
      await press(me, "Execute");
      await answer.waitFor();
      expect(await answer.locator(".response-col_status").textContent()).toBe("200");
      expect(await answer.locator(".response-col_description").textContent()).toContain('"username": "admin"');
      await press(me, "Clear");
      await answer.waitFor({ state: "detached" });
    };
    await scrollTo(page, me);
    // Removes all other operations, because Swagger UI renders all operations again after each action, which takes seconds.
    await page.evaluate(
      (spec) => (window as unknown as { ui: SwaggerUi }).ui.specActions.updateSpec(spec),
      JSON.stringify(documentOfOperation("/auth/me", "get")),
    );
    await expect.poll(() => page.locator(".opblock").count()).toBe(1);
    await authorize(`Bearer ${token}`);
    await me.locator(".opblock-summary-control").click();
    await press(me, "Try it out");
    await executeAndCheck();
    await authorize(token);
    await executeAndCheck();

    expectOnlyOwnRequests(opened);
    await page.close();
  },
);

withBrowser("/redoc shows the API description without requests to other hosts", async () => {
  const opened = await openPage("/redoc");
  const { page } = opened;
  await page.getByRole("heading", { name: /Credential and Secret Lifecycle Service/ }).waitFor();
  await page.getByRole("heading", { name: "Discovery" }).first().waitFor();
  await page.getByRole("heading", { name: "Start a discovery scan" }).first().waitFor();
  expectOnlyOwnRequests(opened);
  await page.close();
});

/** The result of an example request. */
interface ExampleResult {
  operationId: string;
  status: number;
  location: string | null;
}

/** Operations whose example can't succeed without another action, with the status that they return instead. */
const EXPECTED_FAILURES: Record<string, { status: number; needs: string }> = {
  setFirstPassword: { status: 409, needs: "a service that nobody has used" },
  signIn: { status: 401, needs: "the person's password" },
  changePassword: { status: 400, needs: "the person's password" },
  stepUp: { status: 403, needs: "a second factor" },
  startTotp: { status: 400, needs: "the person's password" },
  confirmTotp: { status: 409, needs: "a secret that was started" },
  startPasskey: { status: 400, needs: "the person's password" },
  confirmPasskey: { status: 400, needs: "the answer of an authenticator" },
  replaceRecoveryCodes: { status: 409, needs: "a second factor" },
  registerRotationCredential: { status: 400, needs: "a database server in a monitored subscription" },
  addCertificateAuthority: { status: 503, needs: "a certificate authority at a public address" },
  testCertificateAuthority: { status: 503, needs: "a certificate authority at a public address" },
  approveProposal: { status: 403, needs: "a session of the page" },
  rejectProposal: { status: 403, needs: "a session of the page" },
  discoverSso: { status: 400, needs: "an identity provider at a public address" },
  ssoCallback: { status: 400, needs: "a response of the identity provider" },
  ssoSamlCallback: { status: 400, needs: "a response of the identity provider" },
  ssoBackchannelLogout: { status: 400, needs: "a logout token of the identity provider" },
  ssoSamlLogout: { status: 400, needs: "a logout message of the identity provider" },
};

/** Returns every operation. Signing out is last, because it ends the session of the other requests. */
const operations = () =>
  Object.entries(document.paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    )
    .sort((a, b) => Number(a.operation.operationId === "signOut") - Number(b.operation.operationId === "signOut"));

/** Returns the example request of an operation. */
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

/** Returns the results that are neither a success, nor a 404 for an unknown id, nor an expected failure. */
const unexpectedFailures = (results: readonly ExampleResult[]): ExampleResult[] =>
  results.filter(({ operationId, status }) => {
    const { status: expected = undefined } = EXPECTED_FAILURES[operationId] ?? {};
    return status >= 400 && status !== 404 && status !== expected;
  });

/** Returns the state of the service that the examples must not change: settings, users, number of rules, and so on. */
async function readState() {
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

/** Deletes the resources that the examples created, and returns their number. Runs, such as scans, can't be deleted. */
async function deleteCreated(results: ExampleResult[]): Promise<number> {
  const created = results.filter(({ status, location }) => status === 201 && location !== null);
  const answers = await Promise.all(
    created.map(({ location }) => service.admin("DELETE", location!).catch(() => undefined)),
  );
  return answers.filter((answer) => answer?.status === 200).length;
}

test("every example request is answered as documented, and leaves settings, users and rules unchanged", async () => {
  const stateBefore = await readState();
  const token = await service.signIn(ADMIN);
  const results: ExampleResult[] = [];
  for (const { path, method, operation } of operations()) {
    const { address, body, headers } = exampleOf(path, operation);
    const form = headers["Content-Type"]?.includes("form") ? String(new URLSearchParams(body as never)) : body;
    const { status, headers: answered } = await service.call(method, address, { token, body: form, headers });
    results.push({ operationId: operation.operationId, status, location: answered.get("location") });
  }
  expect(await deleteCreated(results)).toBeGreaterThan(5);
  expect(unexpectedFailures(results)).toEqual([]);
  expect(results.filter(({ status }) => status < 400).length).toBeGreaterThan(results.length / 2);
  expect(await readState()).toEqual(stateBefore);
});

/** The object `ui` of the page, by which tests control Swagger UI. */
interface SwaggerUi {
  getConfigs(): { tryItOutEnabled: boolean };
  preauthorizeApiKey(scheme: string, token: string): void;
  specActions: { updateSpec(document: string): void };
  specSelectors: {
    requestFor(path: string, method: string): unknown;
    responseFor(path: string, method: string): { toJS(): { status?: number; headers?: object } } | undefined;
  };
}

/** Operations that browsers navigate to. Swagger UI can't follow their redirects to another site. */
const NAVIGATIONS = new Set(["ssoLogin", "ssoCallback", "ssoSamlCallback", "ssoSamlLogout"]);

/** Returns a sample of the operations, or in a campaign all of them. */
function sampledOperations() {
  const allOperations = operations().filter(({ operation }) => !NAVIGATIONS.has(operation.operationId));
  if (IS_CAMPAIGN) return allOperations;
  const EVERY = 24;
  return allOperations.filter((_, index) => index % EVERY === SEED % EVERY);
}

withBrowser(
  "a request that /docs prefills succeeds unchanged, and leaves settings, users and rules unchanged",
  async () => {
    const stateBefore = await readState();
    const token = await service.signIn(ADMIN);
    const tested = sampledOperations();
    // The page loads with one operation, because rendering all of them would take seconds.
    const { path, method } = tested[0]!;
    await context!.route("**/openapi.json", (route) =>
      route.fulfill({ json: documentOfOperation(path, method.toLowerCase()) }),
    );
    const { page } = await openPage("/docs");
    await page.locator(".opblock-tag").first().waitFor();
    await context!.unroute("**/openapi.json");
    const results: ExampleResult[] = [];
    for (const { path, operation, ...rest } of tested) {
      const { operationId } = operation;
      const method = rest.method.toLowerCase();
      const spec = JSON.stringify(documentOfOperation(path, method));
      const answer = await page.evaluate(tryOut, { token, spec, path, method, operationId });
      results.push({ operationId, ...answer });
    }
    expect(results.length).toBeGreaterThan(5);
    await deleteCreated(results);
    expect(unexpectedFailures(results)).toEqual([]);
    expect(await readState()).toEqual(stateBefore);
    await page.close();
  },
);

/** Returns the OpenAPI document with one operation and the schemas that it references. */
function documentOfOperation(path: string, method: string): object {
  const { components: allComponents } = document as unknown as { components: Record<string, Record<string, unknown>> };
  const operation = document.paths[path]![method];
  const components: Record<string, Record<string, unknown>> = { securitySchemes: allComponents.securitySchemes! };
  const addReferenced = (part: unknown): void => {
    for (const [, kind, name] of JSON.stringify(part).matchAll(/"#\/components\/(\w+)\/([^"]+)"/g)) {
      if (components[kind!]?.[name!] !== undefined) continue;
      components[kind!] = { ...components[kind!], [name!]: allComponents[kind!]![name!] };
      addReferenced(allComponents[kind!]![name!]);
    }
  };
  addReferenced(operation);
  return { ...document, components, paths: { [path]: { [method]: operation } }, webhooks: {} };
}

/**
 * Makes Swagger UI show one operation, presses its "Execute" with the prefilled values, and returns the result. Runs in the
 * page.
 *
 * @param call.spec - The OpenAPI document with only this operation.
 */
async function tryOut(call: { token: string; spec: string; path: string; method: string; operationId: string }) {
  const { ui } = window as unknown as { ui: SwaggerUi };
  const waitFor = async <T>(read: () => T | undefined | null): Promise<T> => {
    for (const deadline = Date.now() + 150_000; Date.now() < deadline; ) {
      const value = read();
      if (value !== undefined && value !== null) return value;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`Swagger UI did not send ${call.method} ${call.path}`);
  };
  ui.getConfigs().tryItOutEnabled = true;
  // Removes the previous operation.
  ui.specActions.updateSpec(JSON.stringify({ ...JSON.parse(call.spec), paths: {} }));
  await waitFor(() => (globalThis.document.querySelector(".opblock") === null ? true : undefined));
  ui.specActions.updateSpec(call.spec);
  ui.preauthorizeApiKey("bearerAuth", call.token);
  const block = await waitFor(() => globalThis.document.querySelector(`.opblock[id$="-${call.operationId}"]`));
  const execute = () => block.querySelector<HTMLElement>("button.execute");
  if (!execute()) block.querySelector<HTMLElement>(".opblock-summary-control")!.click();
  await waitFor(execute);
  const { status, headers = {} } = await waitFor(() => {
    // Swagger UI fills in values shortly after rendering, and sends nothing before.
    if (!ui.specSelectors.requestFor(call.path, call.method)) execute()?.click();
    const answer = ui.specSelectors.responseFor(call.path, call.method)?.toJS();
    return answer?.status === undefined ? undefined : answer;
  });
  return { status: status!, location: (headers as { location?: string }).location ?? null };
}
