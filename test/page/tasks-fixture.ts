/**
 * The running service, the browser and the visitors of the task tests. tasks.test.ts imports the files with the tests, one per
 * area of the page (`tasks-….ts`). A task is something that a user wants to do, such as rotating a secret that a mail names. Each
 * test performs one task as a visitor and counts the clicks.
 */
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { BrowserContext, Locator, Page } from "playwright-core";
import { initialKey } from "simulated-cloud/arm/resource-keys.ts";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyTenant } from "simulated-cloud/company/tenants.ts";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers } from "../support/users.ts";

const isWithoutBrowser = skipWithout("browser");
/** Declares the test of a task. The test is skipped on a machine without a browser. */
export const task = test.skipIf(isWithoutBrowser);

/** The most clicks that any task may need. */
const MOST_CLICKS = 8;
/** The most clicks from an alert mail to the fix. */
export const MOST_CLICKS_FROM_MAIL = 5;

const TIMEOUT_MS = 120_000;
const PASSWORD = "a password of their own";
/** Users other than the administrator, named after their roles. */
const OTHER_ROLES = ["user", "auditor", "operator"] as const;
type Role = "admin" | (typeof OTHER_ROLES)[number];

/** An application whose vault secret names it and signs in, so that a rotation is ready. */
export const READY_APP = "Identity API";
/** An application whose vault secret has only a similar name, so that a match must be tested first. */
export const UNPROVEN_APP = "CRM Importer";
export const OTHER_UNPROVEN_APP = "Billing Export";
/** An application that the service does not own, so that no rotation is possible. */
export const NOT_OWNED_APP = "Payroll Export";
const [appId, keyId] = [appIdOf(READY_APP), keyIdOf(READY_APP, "current")];

/** A tenant of the company that is not registered yet. */
export const OUTLET: CompanyTenant = {
  name: "Acme Outlet",
  domain: "acmeoutlet.onmicrosoft.com",
  type: "AAD B2C",
  registration: "Outlet Credential Lifecycle",
  applications: [
    { name: "Outlet Credential Lifecycle", secrets: [{ name: "lifecycle", expiresInDays: 60 }] },
    { name: "Outlet Web", secrets: [{ name: "web", expiresInDays: 5 }] },
  ],
};

/** Storage accounts, each with the vault secret that stores its first key. */
export const ACCOUNTS = { stshop: "shop-storage-key", starchive: "archive-storage-key" } as const;

const COMPANY: Company = {
  subscriptions: [
    {
      name: "Shop",
      vaults: [
        {
          name: "kv-shop",
          secrets: [
            { name: "db", expiresInDays: 3, tags: { owner: "shop" } },
            { name: "smtp", expiresInDays: 6 },
            { name: "gone", expiresInDays: -2 },
            ...Object.entries(ACCOUNTS).map(([account, name]) => ({
              name,
              value: initialKey("Microsoft.Storage/storageAccounts", account, "key1"),
              contentType: "text/plain",
              expiresInDays: 5,
              // Not on the day of the applications' client secrets, for which these secrets would then be likely matches.
              createdDaysAgo: 85,
              tags: { owner: "shop" },
            })),
            {
              name: "identity-api-client-secret",
              value: secretValueOf(READY_APP, "current"),
              contentType: `identity:${appId}:${keyId}`,
              expiresInDays: 3,
            },
            { name: "crm-importer-secret", value: secretValueOf(UNPROVEN_APP, "current"), createdDaysAgo: 90 },
            { name: "billing-export-secret", value: secretValueOf(OTHER_UNPROVEN_APP, "current"), createdDaysAgo: 90 },
          ],
        },
        // A vault that denies the service access to its objects.
        { name: "kv-walled", generate: { secrets: 3 }, reach: "denied" },
      ],
      resources: [
        ...Object.keys(ACCOUNTS).map((name) => ({
          type: "Microsoft.Storage/storageAccounts",
          name,
          kind: "StorageV2",
        })),
        {
          type: "Microsoft.Web/sites",
          name: "app-orders",
          kind: "app,linux",
          identity: { system: true },
          properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
          settings: {
            DB: "@Microsoft.KeyVault(VaultName=kv-shop;SecretName=db)",
            STORAGE_KEY: `@Microsoft.KeyVault(VaultName=kv-shop;SecretName=${ACCOUNTS.stshop})`,
          },
        },
      ],
    },
    // A subscription whose resources the service can't list.
    { name: "Finance", denied: true },
  ],
  applications: [
    { name: READY_APP, secrets: [{ name: "current", expiresInDays: 3 }] },
    {
      name: UNPROVEN_APP,
      secrets: [
        { name: "before", expiresInDays: -100, createdDaysAgo: 300 },
        { name: "current", expiresInDays: 5 },
      ],
    },
    { name: OTHER_UNPROVEN_APP, secrets: [{ name: "current", expiresInDays: 6 }] },
    { name: NOT_OWNED_APP, serviceOwns: false, secrets: [{ name: "current", expiresInDays: 200 }] },
  ],
  tenants: [OUTLET],
};

export let service: Service;
let context: BrowserContext;
beforeAll(async () => {
  if (isWithoutBrowser) return;
  const env = { LICENSE_KEY: await licence() };
  const options = { company: COMPANY, env, shortWaits: true, hosts: 0 };
  [service, context] = await Promise.all([Service.start(options), openBrowser()]);
  // Links in mails lead to the page, so the host must know its address when it starts.
  const port = await freePort();
  await service.addHost({ PUBLIC_BASE_URL: `http://127.0.0.1:${port}` }, ["--port", String(port)]);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await createUsers(
    service,
    OTHER_ROLES.map((role) => ({ username: role, password: PASSWORD, role })),
  );
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  const { body } = await service.admin("POST", "/api/assets/dependencies/discover");
  const isDiscovered = async () => {
    const run = await service.admin("GET", `/api/assets/dependencies/runs/${body.runId}`);
    return !["queued", "running"].includes(run.body.status);
  };
  await vi.waitUntil(isDiscovered, { timeout: 150_000, interval: 200 });
});
afterAll(async () => {
  await context?.close();
  await service?.stop();
});
afterEach(async () => {
  for (const page of context?.pages().slice(1) ?? []) await page.close();
});

/** Returns a port that no program listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

/** Matches the IDs that a person would have to copy from elsewhere: GUIDs, ULIDs and asset IDs. */
const ID = /[0-9a-f]{8}-[0-9a-f]{4}-|\b[0-9A-HJKMNP-TV-Z]{26}\b|^[\w-]+\.(?:secret|key|certificate)\./i;

/**
 * A user of the page, with a count of the clicks. Choosing from a list and checking a box count as clicks. Typing does not count,
 * but no task may require a user to type an ID.
 */
export class Visitor {
  readonly page: Page;
  /** The clicked elements, in order. */
  readonly clicks: string[] = [];
  /**
   * Whether the person presses keys instead of clicking, as in each test of a campaign. The tests of the Tab key show that Tab
   * reaches every control.
   */
  usesKeyboard = IS_CAMPAIGN;
  constructor(page: Page) {
    this.page = page;
  }

  /** Clicks a button by its name, in the dialog if one is open. */
  async press(name: string | RegExp, within: Page | Locator = this.page): Promise<void> {
    await this.click(
      within.getByRole("button", { name, ...(typeof name === "string" && { exact: true }) }).first(),
      name,
    );
  }
  /** Follows a link by its name. */
  async follow(name: string | RegExp, within: Page | Locator = this.page): Promise<void> {
    await this.click(
      within.getByRole("link", { name, ...(typeof name === "string" && { exact: true }) }).first(),
      name,
    );
  }
  /** Clicks anything else, or presses its key. */
  async click(target: Locator, what: string | RegExp): Promise<void> {
    if (this.usesKeyboard) {
      await expect.poll(() => target.isEnabled(), { message: String(what), timeout: TIMEOUT_MS }).toBe(true);
      const isBox = await target.evaluate((element) => element.matches("[type=checkbox], [type=radio]"));
      await this.#focus(target);
      await this.page.keyboard.press(isBox ? "Space" : "Enter");
    } else await target.click();
    this.clicks.push(String(what));
  }
  /** Focuses an element until it stays focused. A dialog that closes gives the focus back to the button that opened it. */
  async #focus(target: Locator): Promise<void> {
    const staysFocused = () =>
      target.evaluate(async (element) => {
        (element as HTMLElement).focus();
        await new Promise((resolve) => setTimeout(resolve, 100));
        return document.activeElement === element;
      });
    await expect.poll(staysFocused, { timeout: TIMEOUT_MS }).toBe(true);
  }
  /** Selects an option of a field. */
  async choose(label: string, option: string): Promise<void> {
    const select = this.page.getByLabel(label).and(this.page.locator("select"));
    if (this.usesKeyboard) {
      await this.#focus(select);
      await this.page.keyboard.type(option);
      expect(await select.locator("option:checked").innerText(), label).toBe(option);
    } else await select.selectOption(option);
    this.clicks.push(`${label}: ${option}`);
  }
  /** Types into a field. The text must be no ID, unless `mayBeId` is set, such as for the ID of a new tenant. */
  async type(label: string, text: string, { mayBeId = false } = {}): Promise<void> {
    if (!mayBeId) expect(text, `${label}: a task needs no typed ID`).not.toMatch(ID);
    // Cards and buttons have labels too.
    const fields = this.page.getByLabel(label).and(this.page.locator("input, textarea"));
    await fields.first().fill(text);
  }
  /** The open dialog. */
  get dialog(): Locator {
    return this.page.getByRole("dialog");
  }
  /** The navigation between views. */
  get navigation(): Locator {
    return this.page.getByRole("navigation").first();
  }
  /** Waits for a text. */
  async see(text: string | RegExp, within: Page | Locator = this.page): Promise<void> {
    await within.getByText(text).first().waitFor();
  }
  /** Waits for the heading of a view. */
  async arrive(heading: string | RegExp): Promise<void> {
    await this.page.getByRole("heading", { name: heading, level: 1 }).waitFor();
  }
  /** Fails if the task needed more clicks. */
  expectClicks(most = MOST_CLICKS): void {
    expect(this.clicks.length, this.clicks.join(" > ")).toBeLessThanOrEqual(most);
  }
}

/** The session cookies of each role. The service limits the number of sign-ins per minute. */
const sessions = new Map<Role, Awaited<ReturnType<BrowserContext["cookies"]>>>();

/** Signs in and opens a view. Neither counts as a click. */
export async function visit(role: Role = "admin", view = "/"): Promise<Visitor> {
  await context.clearCookies();
  const session = sessions.get(role);
  if (session) await context.addCookies(session);
  else {
    const credentials = role === "admin" ? ADMIN : { username: role, password: PASSWORD };
    const answer = await context.request.post(`${service.url}/auth/login`, {
      headers: { Origin: service.url },
      data: { ...credentials, session: true },
    });
    expect(answer.status()).toBe(200);
    sessions.set(role, await context.cookies());
  }
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.goto(`${service.url}/#${view}`);
  await page.locator("main h1").waitFor();
  return new Visitor(page);
}

/** Opens a received mail in place of the page, as a mail program would. */
export async function openMail(visitor: Visitor, html: string): Promise<void> {
  await visitor.page.goto("about:blank");
  await visitor.page.setContent(html);
}

/** Returns the newest mail whose subject matches. */
export async function waitForMail(subject: RegExp): Promise<string> {
  const find = () => service.cloud.control.mails().findLast((mail) => subject.test(mail.subject))?.html;
  return await vi.waitUntil(find, { timeout: 150_000, interval: 200 });
}

/** Evaluates the alert rules now and sends their notifications. */
export const evaluateAlerts = () =>
  fetch(`${service.url}/admin/functions/evaluateAlerts`, { method: "POST", body: "{}" });
