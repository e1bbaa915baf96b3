import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { freePort } from "functions-host/test/run-host.ts";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { configureSingleSignOn } from "../../infra/local/single-sign-on.ts";
import { endStarted, npmStart } from "../local/npm-start.ts";
import { openBrowser } from "../support/browser.ts";
import { skipWithout } from "../support/tools.ts";

const withBrowser = test.skipIf(skipWithout("browser"));

let base: string;
let provider: string;
let switchTo: (protocol: "oidc" | "saml") => Promise<unknown>;
let context: BrowserContext;
beforeAll(async () => {
  const data = mkdtempSync(path.join(tmpdir(), "start-"));
  const port = await freePort();
  const started = npmStart(data, ["--pro", "--no-scan"], { PORT: String(port), TRUSTED_PROXY_HOPS: "2" });
  [context] = await Promise.all([openBrowser(), started.ready]);
  base = `http://localhost:${port}`;
  const cloud = JSON.parse(readFileSync(path.join(data, "stand-in/cloud/cloud.json"), "utf8"));
  const { adminPassword } = JSON.parse(readFileSync(path.join(data, "stand-in/secrets.json"), "utf8"));
  provider = `http://127.0.0.1:${cloud.identityProviderPort}`;
  const standIn = {
    controlUrl: `http://127.0.0.1:${cloud.controlPort}/control`,
    oidc: { issuer: provider, ...cloud.oidcClient },
  };
  switchTo = (protocol) =>
    configureSingleSignOn(base, { username: "admin", password: adminPassword }, standIn, protocol);
  const said = started.lines.join("\n");
  expect(said).toContain(`${base}/auth/sso/login`);
  expect(said).toContain("Ada Lindqvist");
});
let addresses = 0;
beforeEach(async () => {
  await context.clearCookies();
  // Each test has its own address, because sign-ins from one address are limited.
  await context.setExtraHTTPHeaders({ "X-Forwarded-For": `198.51.100.${++addresses}` });
});
afterAll(async () => {
  await context?.close();
  await endStarted();
});

/**
 * Opens a page. /docs is the page after the sign-in; its scripts may call the service. Its large scripts are not loaded,
 * because another test covers its content.
 */
async function newPage(): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.setBlockedURLs", { urls: [`${base}/docs/files/*`] });
  return page;
}

async function open(address: string): Promise<Page> {
  const page = await newPage();
  await page.goto(base + address);
  return page;
}

const choose = (page: Page, name: string) => page.getByRole("button", { name }).click();

/** A request by the page's own script. */
const call = (page: Page, method: string, address: string) =>
  page.evaluate(
    async ([method, address]) => {
      const answer = await fetch(address!, { method: method! });
      const text = await answer.text();
      return { status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : text };
    },
    [method, address],
  );

/** The text of the page after a failed sign-in: with the request's id, and without a session. */
async function endsOnPage(page: Page, status: number, address: string | RegExp): Promise<void> {
  const [answer] = await Promise.all([
    page.waitForResponse((one) => one.status() === status),
    page.waitForURL(address),
  ]);
  expect(answer.headers()["content-type"]).toContain("text/html");
  const text = await page.locator("body").innerText();
  expect(text).toContain(answer.headers()["x-request-id"]);
  expect(text).toMatch(/sign in|returnUrl/i);
  const { cookies } = await context.storageState();
  expect(cookies.filter(({ name }) => name === "__Host-session")).toEqual([]);
}

withBrowser.each([
  ["oidc", /\/authorize\?|\/interaction\//, "cross-site"],
  ["saml", /\/saml\/sso\?/, "cross-site"],
] as const)(
  "with %s a user signs in, reaches the requested page, calls with the cookie and signs out",
  async (protocol, atProvider, site) => {
    await switchTo(protocol);
    const page = await open("/auth/sso/login?returnUrl=/docs");
    expect(page.url().startsWith(provider)).toBe(true);
    expect(page.url()).toMatch(atProvider);
    const back = page.waitForRequest((request) => request.url().startsWith(`${base}/auth/sso/callback`));
    await choose(page, "Ada Lindqvist");
    await page.waitForURL(`${base}/docs`);
    const arrived = await back;
    expect(arrived.method()).toBe(protocol === "saml" ? "POST" : "GET");
    expect((await arrived.allHeaders())["sec-fetch-site"]).toBe(site);

    const session = (await context.cookies(base)).find(({ name }) => name === "__Host-session");
    expect(session).toMatchObject({ httpOnly: true, secure: true, sameSite: "Lax", path: "/" });
    expect(await page.evaluate("document.cookie")).toBe("");
    const me = await call(page, "GET", "/auth/me");
    expect(me).toMatchObject({ status: 200, body: { role: "admin", source: "sso", email: "ada@acme.example" } });

    expect((await call(page, "POST", "/auth/logout")).status).toBe(200);
    expect((await call(page, "GET", "/auth/me")).status).toBe(401);
    await page.close();
  },
);

withBrowser.each(["oidc", "saml"] as const)(
  "with %s the first of two tabs, and a repeated callback, get a page that asks to sign in again",
  async (protocol) => {
    await switchTo(protocol);
    const first = await open("/auth/sso/login");
    const second = await open("/auth/sso/login?returnUrl=/docs");
    await Promise.all([endsOnPage(first, 400, /\/auth\/sso\/callback/), choose(first, "Uma Okafor")]);

    const bound = await context.cookies(base);
    const callback = second.waitForRequest((request) => request.url().startsWith(`${base}/auth/sso/callback`));
    await choose(second, "Uma Okafor");
    await second.waitForURL(`${base}/docs`);
    await call(second, "POST", "/auth/logout");
    const request = await callback;
    // Even with the cookie of that sign-in.
    await context.addCookies(bound);
    const replayed = await newPage();
    if (protocol === "oidc") {
      await Promise.all([endsOnPage(replayed, 400, /callback/), replayed.goto(request.url())]);
    } else {
      // Posted like the provider's page does: a form, from its own site.
      await replayed.goto(`${provider}/jwks`);
      const fields = Object.fromEntries(new URLSearchParams(request.postData()!));
      await replayed.setContent(formTo(request.url(), fields));
      await Promise.all([endsOnPage(replayed, 400, /callback/), replayed.locator("button").click()]);
    }
    await Promise.all([first.close(), second.close(), replayed.close()]);
  },
);

const formTo = (address: string, fields: Record<string, string>): string => {
  const inputs = Object.entries(fields).map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`);
  return `<form method="post" action="${address}">${inputs.join("")}<button>Send</button></form>`;
};

withBrowser("an administrator who came in by it switches passwords off, and on again", async () => {
  await switchTo("oidc");
  const page = await open("/auth/sso/login?returnUrl=/");
  await choose(page, "Ada Lindqvist");
  await page.waitForURL((url) => url.origin === base && url.pathname === "/");
  await page.goto(`${base}/#/sso`);
  const dialog = page.getByRole("dialog");
  const isOnly = async () => (await call(page, "GET", "/auth/sso/status")).body.ssoOnlyMode;
  await choose(page, "Turn off passwords");
  await dialog.getByRole("button", { name: "Turn off passwords", exact: true }).click();
  await choose(page, "Turn on passwords");
  expect(await isOnly()).toBe(true);
  await dialog.getByRole("button", { name: "Turn on passwords", exact: true }).click();
  await page.getByRole("button", { name: "Turn off passwords" }).waitFor();
  expect(await isOnly()).toBe(false);
  await page.close();
});

withBrowser("a foreign returnUrl, and a user who cancels, end on a page with an explanation", async () => {
  await switchTo("oidc");
  for (const foreign of ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example"]) {
    const page = await newPage();
    const address = `${base}/auth/sso/login?returnUrl=${encodeURIComponent(foreign)}`;
    await Promise.all([endsOnPage(page, 400, address), page.goto(address)]);
    expect(await page.locator("a[href*=elsewhere]").count()).toBe(0);
    await page.close();
  }
  const page = await open("/auth/sso/login");
  await Promise.all([endsOnPage(page, 400, /callback/), choose(page, "Cancel")]);
  // Text of the provider is not shown.
  expect(await page.content()).not.toContain("was chosen");
  await page.close();
});
