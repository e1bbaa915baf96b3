import { freePort } from "functions-host/test/run-host.ts";
import type { BrowserContext } from "playwright-core";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers } from "../support/users.ts";

// A person replaces a client secret on the page of the application: the plan before the act, the steps as they happen, the rollback.

const withBrowser = test.skipIf(skipWithout("browser"));
const PASSWORD = "seven green bicycles uphill";
const NAME = "Deployer";
const CONNECTION = { name: "deploy", application: NAME, secret: "current", creationMode: "Automatic" as const };

let service: Service;
let context: BrowserContext;
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://localhost:${port}`;
  service = await Service.start({
    hosts: 0,
    company: {
      subscriptions: [{ name: "Shop", vaults: [{ name: "kv-shop" }] }],
      applications: [{ name: NAME, secrets: [{ name: "current", expiresInDays: 90 }] }],
      devops: { organization: "acme", projects: [{ name: "Shop", connections: [CONNECTION] }] },
    },
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: url },
  });
  [context] = await Promise.all([openBrowser(), service.addHost({}, ["--port", String(port)])]);
  await service.scan({ mode: "full" });
  await service.admin("POST", "/api/automation/rotation/discover");
  await service.admin("PUT", "/api/settings/integrations/devops", { orgUrl: "https://dev.azure.com/acme" });
  await service.waitUntilIdle();
  const { body } = await service.admin("POST", "/api/assets/dependencies/discover");
  const isOver = async () =>
    (await service.admin("GET", `/api/assets/dependencies/runs/${body.runId}`)).body.finishedAt !== null;
  await vi.waitUntil(isOver, { timeout: 300_000, interval: 500 });
  await createUsers(service, [{ username: "boss", password: PASSWORD, role: "admin" }]);
}, 600_000);
afterAll(async () => {
  await context?.close();
  await service?.stop();
});

withBrowser(
  "a person sees the plan, starts the replacement, follows its steps, and rolls it back",
  async () => {
    const report = await service.admin("GET", `/api/automation/rotation/apps/${appIdOf(NAME)}/secretless`);
    expect(report.body.secrets.map(({ verdict }: { verdict: string }) => verdict)).toEqual(["possible"]);
    const page = await context.newPage();
    page.setDefaultTimeout(90_000);
    await page.goto(`${url}/#/rotation/apps/${appIdOf(NAME)}`);
    await page.getByLabel("Username").fill("boss");
    await page.getByLabel("Password").fill(PASSWORD);
    await page.getByRole("button", { name: "Sign in" }).click();

    await page.getByRole("button", { name: /^Replace secret: / }).click();
    const dialog = page.getByRole("dialog");
    // Nothing can be started before the plan is shown.
    expect(await dialog.getByRole("button", { name: "Replace secret", exact: true }).count()).toBe(0);
    await dialog.getByLabel("Days without a sign-in").fill("5");
    await dialog.getByRole("button", { name: "Preview plan" }).click();
    await dialog.getByText("Azure DevOps chooses the issuer and the subject.").waitFor();
    await dialog.getByText("Convert service connections").waitFor();
    expect((await service.admin("GET", "/api/automation/rotation/secretless")).body.items).toEqual([]);
    await dialog.getByRole("button", { name: "Replace secret", exact: true }).click();
    await dialog.waitFor({ state: "hidden" });

    await page.getByText("Convert service connections: done").waitFor();
    await page.getByText("Watch sign-ins with the secret: in progress").waitFor();
    await page.getByRole("button", { name: "Accept risks" }).click();
    await dialog.getByText("You accept").waitFor();
    await dialog.getByRole("button", { name: "Accept and remove when idle" }).click();
    await dialog.waitFor({ state: "hidden" });
    await vi.waitUntil(async () => {
      const { items } = (await service.admin("GET", "/api/automation/rotation/secretless")).body;
      return items[0].confirmedBy === "boss";
    });

    await page.getByRole("button", { name: "Roll back", exact: true }).click();
    await dialog.getByRole("button", { name: "Roll back", exact: true }).click();
    await dialog.getByText("Workloads may already sign in").waitFor();
    await dialog.getByLabel("Roll back even if workloads have switched").check();
    await dialog.getByRole("button", { name: "Roll back", exact: true }).click();
    await dialog.waitFor({ state: "hidden" });
    await page.getByText("Revert service connections: done").waitFor();
    await page.getByText(/Replacement of .*: Rolled back/).waitFor();
  },
  300_000,
);
