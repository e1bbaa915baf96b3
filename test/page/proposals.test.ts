import { freePort } from "functions-host/test/run-host.ts";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { connectMcp, createApiToken, type McpClient } from "../support/mcp.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";

// Changes that an assistant proposed over MCP, in a real browser: a person sees the exact request, and approves or rejects it.

const withBrowser = test.skipIf(skipWithout("browser"));

let service: Service;
let context: BrowserContext;
let assistant: McpClient;
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://localhost:${port}`;
  service = await Service.start({ hosts: 0, env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: url } });
  [context] = await Promise.all([openBrowser(), service.addHost({}, ["--port", String(port)])]);
  assistant = await connectMcp(url, await createApiToken(service, "admin"));
}, 180_000);
afterAll(async () => {
  await assistant?.client.close();
  await context?.close();
  await service?.stop();
});

const HIDDEN = "hidden\u202etext";
async function propose(workers: number, reason = "Scans take longer than an hour."): Promise<string> {
  const args = { name: "updatePerformanceSettings", body: { discoveryMaxWorkers: workers }, reason };
  const { json, isError, text } = await assistant.call("propose_change", args);
  expect(isError, text).toBe(false);
  return json.data.proposal.id;
}

async function openProposals(): Promise<Page> {
  await context.clearCookies();
  const page = await context.newPage();
  await page.goto(`${url}/#/proposals`);
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Proposed changes" }).waitFor();
  return page;
}

const proposalOf = async (id: string) => (await service.admin("GET", `/api/proposals/${id}`)).body;

withBrowser("a person sees the exact request and its dry run, and approves it", async () => {
  const id = await propose(7, `Please approve ${HIDDEN}`);
  const page = await openProposals();
  await page
    .getByRole("button", { name: /^Approve: Override settings/ })
    .first()
    .click();
  const dialog = page.getByRole("dialog", { name: /^Approve/ });
  const text = await dialog.innerText();
  expect(text).toContain('"discoveryMaxWorkers": 7');
  expect(text).toContain('"path": "/api/settings/performance"');
  expect(text).toContain("Dry run");
  expect(text).not.toContain(HIDDEN);
  await dialog.getByRole("button", { name: "Approve and run" }).click();
  await page.getByText("Done (admin)").waitFor();
  expect((await proposalOf(id)).state).toBe("done");
  const { body } = await service.admin("GET", "/api/settings/performance");
  expect(body.find(({ key }: { key: string }) => key === "discoveryMaxWorkers").value).toBe(7);
  await page.close();
});

withBrowser("a person rejects a proposal, and the list shows it", async () => {
  const id = await propose(8);
  const page = await openProposals();
  await page
    .getByRole("button", { name: /^Reject: Override settings/ })
    .first()
    .click();
  await page.getByRole("dialog").getByRole("button", { name: "Reject proposal" }).click();
  await page.getByText("Rejected (admin)").waitFor();
  expect((await proposalOf(id)).state).toBe("rejected");
  await page.goto(`${url}/#/proposals?state=pending`);
  await page.getByText("No proposals.").waitFor();
  await page.close();
});

withBrowser("a change that the service rejects is shown with the reason", async () => {
  const path = "/api/settings/logging";
  await service.admin("PUT", path, { logLevel: "DEBUG" });
  const params = { category: "logging", key: "logLevel" };
  await assistant.call("propose_change", { name: "removeOverride", path_parameters: params, reason: "Not needed." });
  await service.admin("DELETE", `${path}/logLevel`);
  const page = await openProposals();
  await page
    .getByRole("button", { name: /^Approve: Remove an override/ })
    .first()
    .click();
  await page.getByRole("dialog").getByRole("button", { name: "Approve and run" }).click();
  await page.getByText("The service rejected the change: An override of logLevel does not exist.").waitFor();
  await page.close();
});
