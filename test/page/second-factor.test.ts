import { freePort } from "functions-host/test/run-host.ts";
import { Secret, TOTP } from "otpauth";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers, servicesOf } from "../support/users.ts";
import { addVirtualAuthenticator } from "../support/virtual-authenticator.ts";

// The second factor in a real browser: the sign-in form, the account's methods, and the administrator's reset. Passkeys are those
// of Chromium's virtual authenticator.

const withBrowser = test.skipIf(skipWithout("browser"));
const PASSWORD = "seven green bicycles uphill";

let service: Service;
let context: BrowserContext;
/** Passkeys are bound to a host name, so the tests use `localhost` rather than its address. */
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://localhost:${port}`;
  service = await Service.start({
    hosts: 0,
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: url, TRUSTED_PROXY_HOPS: "2" },
  });
  [context] = await Promise.all([openBrowser(), service.addHost({}, ["--port", String(port)])]);
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});

let sequence = 0;
/** Creates a user and opens the page without a session, from an address of its own. */
async function openAsNewUser(): Promise<{ page: Page; username: string }> {
  const username = `person${++sequence}`;
  await createUsers(service, [{ username, password: PASSWORD, role: "user" }]);
  await context.setExtraHTTPHeaders({ "X-Forwarded-For": `198.51.100.${sequence}` });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await openSignIn(page);
  return { page, username };
}

async function openSignIn(page: Page): Promise<void> {
  await context.clearCookies();
  await page.goto(`${url}/#/access`);
  await page.reload();
}

async function signIn(page: Page, username: string): Promise<void> {
  await page.getByLabel("Username").fill(username);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
}

const accessView = (page: Page) => page.getByRole("heading", { name: "Your second factors" });
const codeOf = (secret: string, steps = 0): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: Date.now() + steps * 30_000 });

/**
 * Adds an authenticator app, and returns its secret and the recovery codes. Each code works once, so the app is confirmed with
 * the code of the previous step, and the current one is left for a sign-in.
 */
async function addApp(page: Page): Promise<{ secret: string; codes: string[] }> {
  await page.getByRole("button", { name: "Add authenticator app" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Show QR code" }).click();
  await dialog.getByRole("img", { name: "QR code of the secret" }).waitFor();
  const secret = (await dialog.locator("pre").textContent())!;
  await dialog.getByLabel("Code", { exact: true }).fill(codeOf(secret, -1));
  await dialog.getByRole("button", { name: "Confirm code" }).click();
  await dialog.getByText("Save these recovery codes now").waitFor();
  const codes = (await dialog.locator("pre").textContent())!.split("\n");
  await dialog.getByRole("button", { name: "Close" }).click();
  return { secret, codes };
}

withBrowser(
  "a user adds an authenticator app, signs in with its code and with a recovery code, and removes it",
  async () => {
    const { page, username } = await openAsNewUser();
    await signIn(page, username);
    await accessView(page).waitFor();
    const { secret, codes } = await addApp(page);
    expect(codes).toHaveLength(10);
    await page.getByText("Unused recovery codes: 10").waitFor();

    await openSignIn(page);
    await signIn(page, username);
    const code = page.getByLabel("Code of your authenticator app");
    expect(await code.getAttribute("autocomplete")).toBe("one-time-code");
    await code.fill("000000");
    await page.getByRole("button", { name: "Verify" }).click();
    await page.getByText("The second factor is wrong").first().waitFor();
    await code.fill(codeOf(secret));
    await page.getByRole("button", { name: "Verify" }).click();
    await accessView(page).waitFor();

    await openSignIn(page);
    await signIn(page, username);
    await page.getByRole("button", { name: "Use a recovery code" }).click();
    await page.getByLabel("Recovery code").fill(codes[0]!);
    await page.getByRole("button", { name: "Verify" }).click();
    await accessView(page).waitFor();
    await page.getByText("Unused recovery codes: 9").waitFor();

    await page.getByRole("button", { name: "Remove: Authenticator app" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Current password").fill(PASSWORD);
    await dialog.getByLabel("Code or recovery code").fill(codes[1]!);
    await dialog.getByRole("button", { name: "Remove second factor" }).click();
    await page.getByText("No second factor.").waitFor();
    await page.close();
  },
);

withBrowser("a user adds a passkey and signs in with it, and its answer works once", async () => {
  const { page, username } = await openAsNewUser();
  await addVirtualAuthenticator(page);
  await signIn(page, username);
  await accessView(page).waitFor();
  await page.getByRole("button", { name: "Add passkey" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Test laptop");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Create passkey" }).click();
  await dialog.getByText("Save these recovery codes now").waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  await page.getByText("Test laptop").waitFor();

  await openSignIn(page);
  // Keeps the authenticator's answer, to send it again.
  await page.evaluate(`
    const get = navigator.credentials.get.bind(navigator.credentials);
    navigator.credentials.get = async (options) => {
      const passkey = await get(options);
      window.answer = JSON.stringify(passkey);
      return passkey;
    };
  `);
  await signIn(page, username);
  await page.getByRole("button", { name: "Use a passkey" }).click();
  await accessView(page).waitFor();

  const passkey = JSON.parse(await page.evaluate("answer"));
  expect(passkey.type).toBe("public-key");
  const body = { username, password: PASSWORD, passkey };
  const headers = { "X-Forwarded-For": `198.51.100.${sequence}` };
  // Many authenticators count no signatures, so the counter must not be what rejects the second use.
  const { tables } = await servicesOf(service);
  await tables.modify(User, USERS_PARTITION, username, (user) => {
    const passkeys = user!.secondFactor!.passkeys.map((stored) => ({ ...stored, counter: 0 }));
    return { ...user!, secondFactor: { ...user!.secondFactor!, passkeys } };
  });
  const repeated = await service.call("POST", "/auth/login", { body, headers });
  expect([repeated.status, repeated.body.code]).toEqual([401, "secondFactorFailed"]);
  expect(repeated.body.methods).toEqual(["passkey", "recoveryCode"]);
  // The answer does not fit another challenge, although the signature counter would.
  const { body: current } = await service.call("POST", "/auth/login", {
    body: { username, password: PASSWORD },
    headers,
  });
  const clientData = { type: "webauthn.get", challenge: current.passkeyOptions.challenge, origin: url };
  const forged = structuredClone(body);
  forged.passkey.response.clientDataJSON = Buffer.from(JSON.stringify(clientData)).toString("base64url");
  expect((await service.call("POST", "/auth/login", { body: forged, headers })).body.code).toBe("secondFactorFailed");

  // Removing it asks the browser for the passkey, if no code is entered.
  await page.getByRole("button", { name: "Remove: Test laptop" }).click();
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Remove second factor" }).click();
  await page.getByText("No second factor.").waitFor();
  await page.close();
});

withBrowser("an administrator resets the second factor of a user", async () => {
  const { page, username } = await openAsNewUser();
  await signIn(page, username);
  await accessView(page).waitFor();
  await addApp(page);
  await openSignIn(page);
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: `Reset second factor: ${username}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reset second factor" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const { body } = await service.admin("GET", `/auth/users/${username}`);
  expect(body.secondFactorEnrolled).toBe(false);
  await page.close();
});

withBrowser("a user who must have a second factor adds one before the page opens", async () => {
  const { page, username } = await openAsNewUser();
  const settings = "/api/settings/features";
  const body = { requireSecondFactor: "everyone" };
  const { status } = await service.call("PUT", settings, { token: await service.signIn(ADMIN), body });
  // 403 if this test is repeated: the setting also restricts its administrator.
  expect([200, 403]).toContain(status);
  await signIn(page, username);
  await page.getByRole("heading", { name: "Add a second factor" }).waitFor();
  await addApp(page);
  await page.getByRole("button", { name: "Continue" }).click();
  await accessView(page).waitFor();
  await page.close();
});
