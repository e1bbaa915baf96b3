import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { freePort } from "functions-host/test/run-host.ts";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { configureSingleSignOn } from "../../infra/local/single-sign-on.ts";
import { endStartedProcesses, npmStart } from "../local/npm-start.ts";
import { openBrowser } from "../support/browser.ts";
import { skipWithout } from "../support/tools.ts";

// Tests of sign-ins with OpenID Connect and SAML in a real browser, with the service that `npm start` starts on this machine
// and its simulated identity provider.

const withBrowser = test.skipIf(skipWithout("browser"));

let serviceUrl: string;
let providerUrl: string;
/** Configures the service for one of the two protocols. */
let configureProtocol: (protocol: "oidc" | "saml") => Promise<unknown>;
let context: BrowserContext;
beforeAll(async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const port = await freePort();
  // The host appends an entry to X-Forwarded-For. With two hops, the entry before it, which the tests set, is the address.
  const started = npmStart(data, ["--pro", "--no-scan"], { PORT: String(port), TRUSTED_PROXY_HOPS: "2" });
  [context] = await Promise.all([openBrowser(), started.ready]);
  serviceUrl = `http://localhost:${port}`;
  const cloud = JSON.parse(readFileSync(path.join(data, "stand-in/cloud/cloud.json"), "utf8"));
  const { adminPassword } = JSON.parse(readFileSync(path.join(data, "stand-in/secrets.json"), "utf8"));
  providerUrl = `http://127.0.0.1:${cloud.identityProviderPort}`;
  const standIn = {
    controlUrl: `http://127.0.0.1:${cloud.controlPort}/control`,
    oidc: { issuer: providerUrl, ...cloud.oidcClient },
  };
  configureProtocol = (protocol) =>
    configureSingleSignOn(serviceUrl, { username: "admin", password: adminPassword }, standIn, protocol);
  const printedLines = started.lines.join("\n");
  expect(printedLines).toContain(`${serviceUrl}/auth/sso/login`);
  expect(printedLines).toContain("Ada Lindqvist");
});
let clientAddresses = 0;
beforeEach(async () => {
  await context.clearCookies();
  // Each test has its own address, because sign-ins from one address are limited.
  await context.setExtraHTTPHeaders({ "X-Forwarded-For": `198.51.100.${++clientAddresses}` });
});
afterAll(async () => {
  await context?.close();
  await endStartedProcesses();
});

/**
 * Opens an empty page. It does not load the large scripts of /docs, the page after the sign-in, because no test here needs
 * them.
 */
async function newPage(): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.setBlockedURLs", { urls: [`${serviceUrl}/docs/files/*`] });
  return page;
}

async function openPath(address: string): Promise<Page> {
  const page = await newPage();
  await page.goto(serviceUrl + address);
  return page;
}

const clickButton = (page: Page, name: string) => page.getByRole("button", { name }).click();

/** Sends a request to the service from a script in the page, with the page's cookies. */
const callService = (page: Page, method: string, address: string) =>
  page.evaluate(
    async ([method, address]) => {
      const response = await fetch(address!, { method: method! });
      const text = await response.text();
      return { status: response.status, body: text.startsWith("{") ? JSON.parse(text) : text };
    },
    [method, address],
  );

/** Expects the page to show a failed sign-in with the request's ID, and the browser to have no session. */
async function expectErrorPage(page: Page, status: number, address: string | RegExp): Promise<void> {
  const [response] = await Promise.all([
    page.waitForResponse((received) => received.status() === status),
    page.waitForURL(address),
  ]);
  expect(response.headers()["content-type"]).toContain("text/html");
  const text = await page.locator("body").innerText();
  expect(text).toContain(response.headers()["x-request-id"]);
  expect(text).toMatch(/sign in|returnUrl/i);
  const cookies = await context.cookies();
  expect(cookies.filter(({ name }) => name === "__Host-session")).toEqual([]);
}

withBrowser.each([
  ["oidc", /\/authorize\?|\/interaction\//, "cross-site"],
  ["saml", /\/saml\/sso\?/, "cross-site"],
] as const)(
  "with %s a user signs in, calls the service from the requested page and signs out",
  async (protocol, providerPage, expectedSite) => {
    await configureProtocol(protocol);
    const page = await openPath("/auth/sso/login?returnUrl=/docs");
    expect(page.url().startsWith(providerUrl)).toBe(true);
    expect(page.url()).toMatch(providerPage);
    const callbackRequest = page.waitForRequest((request) =>
      request.url().startsWith(`${serviceUrl}/auth/sso/callback`),
    );
    await clickButton(page, "Ada Lindqvist");
    await page.waitForURL(`${serviceUrl}/docs`);
    const callback = await callbackRequest;
    expect(callback.method()).toBe(protocol === "saml" ? "POST" : "GET");
    expect((await callback.allHeaders())["sec-fetch-site"]).toBe(expectedSite);

    const session = (await context.cookies(serviceUrl)).find(({ name }) => name === "__Host-session");
    expect(session).toMatchObject({ httpOnly: true, secure: true, sameSite: "Lax", path: "/" });
    expect(await page.evaluate("document.cookie")).toBe("");
    const me = await callService(page, "GET", "/auth/me");
    expect(me).toMatchObject({ status: 200, body: { role: "admin", source: "sso", email: "ada@acme.example" } });

    expect((await callService(page, "POST", "/auth/logout")).status).toBe(200);
    expect((await callService(page, "GET", "/auth/me")).status).toBe(401);
    await page.close();
  },
);

withBrowser.each([
  ["oidc", /\/session\/end\?/],
  ["saml", /\/saml\/slo\?/],
] as const)(
  "with %s the page's sign-out opens logoutUrl, which ends the provider's session and leads back to the sign-in page",
  async (protocol, logoutPage) => {
    await configureProtocol(protocol);
    const page = await openPath("/auth/sso/login?returnUrl=/");
    await clickButton(page, "Uma Okafor");
    await page.waitForURL((url) => url.origin === serviceUrl && url.pathname === "/");
    const atProvider = page.waitForRequest(
      (request) => request.url().startsWith(providerUrl) && logoutPage.test(request.url()),
    );
    await clickButton(page, "Signed in as uma");
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await atProvider;
    // With OpenID Connect, the provider asks first.
    if (protocol === "oidc") await clickButton(page, "Sign out");
    await page.getByText("Sign in with Acme").waitFor();
    expect(new URL(page.url()).origin).toBe(serviceUrl);
    expect((await callService(page, "GET", "/auth/me")).status).toBe(401);
    // The provider has no session any more, so it asks who signs in.
    await page.getByText("Sign in with Acme").click();
    await page.getByRole("button", { name: "Uma Okafor" }).waitFor();
    await page.close();
  },
);

withBrowser.each(["oidc", "saml"] as const)(
  "with %s the first of two tabs and a repeated callback get a page that asks to sign in again",
  async (protocol) => {
    await configureProtocol(protocol);
    const first = await openPath("/auth/sso/login");
    const second = await openPath("/auth/sso/login?returnUrl=/docs");
    await Promise.all([expectErrorPage(first, 400, /\/auth\/sso\/callback/), clickButton(first, "Uma Okafor")]);

    const bindingCookies = await context.cookies(serviceUrl);
    const callback = second.waitForRequest((request) => request.url().startsWith(`${serviceUrl}/auth/sso/callback`));
    await clickButton(second, "Uma Okafor");
    await second.waitForURL(`${serviceUrl}/docs`);
    await callService(second, "POST", "/auth/logout");
    const request = await callback;
    // Repeats the callback with the cookie that binds the sign-in to this browser.
    await context.addCookies(bindingCookies);
    const replayed = await newPage();
    if (protocol === "oidc") {
      await Promise.all([expectErrorPage(replayed, 400, /callback/), replayed.goto(request.url())]);
    } else {
      // The provider's page posts a form from its own site, so this page does the same.
      await replayed.goto(`${providerUrl}/jwks`);
      const fields = Object.fromEntries(new URLSearchParams(request.postData()!));
      await replayed.setContent(formHtml(request.url(), fields));
      await Promise.all([expectErrorPage(replayed, 400, /callback/), replayed.locator("button").click()]);
    }
    await Promise.all([first.close(), second.close(), replayed.close()]);
  },
);

const formHtml = (address: string, fields: Record<string, string>): string => {
  const inputs = Object.entries(fields).map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`);
  return `<form method="post" action="${address}">${inputs.join("")}<button>Send</button></form>`;
};

withBrowser("an administrator who signed in with SSO turns passwords off and on again", async () => {
  await configureProtocol("oidc");
  const page = await openPath("/auth/sso/login?returnUrl=/");
  await clickButton(page, "Ada Lindqvist");
  await page.waitForURL((url) => url.origin === serviceUrl && url.pathname === "/");
  await page.goto(`${serviceUrl}/#/sso`);
  const dialog = page.getByRole("dialog");
  const isSsoOnly = async () => (await callService(page, "GET", "/auth/sso/status")).body.ssoOnlyMode;
  await clickButton(page, "Turn off password sign-in");
  await dialog.getByRole("button", { name: "Turn off password sign-in", exact: true }).click();
  await clickButton(page, "Turn on password sign-in");
  expect(await isSsoOnly()).toBe(true);
  await dialog.getByRole("button", { name: "Turn on password sign-in", exact: true }).click();
  await page.getByRole("button", { name: "Turn off password sign-in" }).waitFor();
  expect(await isSsoOnly()).toBe(false);
  await page.close();
});

withBrowser("a returnUrl of another site and a canceled sign-in end on a page with an explanation", async () => {
  await configureProtocol("oidc");
  for (const foreign of ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example"]) {
    const page = await newPage();
    const address = `${serviceUrl}/auth/sso/login?returnUrl=${encodeURIComponent(foreign)}`;
    await Promise.all([expectErrorPage(page, 400, address), page.goto(address)]);
    expect(await page.locator("a[href*=elsewhere]").count()).toBe(0);
    await page.close();
  }
  const page = await openPath("/auth/sso/login");
  await Promise.all([expectErrorPage(page, 400, /callback/), clickButton(page, "Cancel")]);
  // The page does not show the provider's error text ("Nobody was chosen").
  expect(await page.content()).not.toContain("was chosen");
  await page.close();
});
