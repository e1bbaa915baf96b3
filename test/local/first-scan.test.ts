import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { runScan } from "../../infra/local/first-scan.ts";
import { ADMIN, Service } from "../support/service.ts";

// Tests the output of `npm start` about its first scan. The simulated company has two subscriptions, and one denies access.

const secrets = [{ name: "db", expiresInDays: 20 }];
const FINANCE_ID = "f1111111-1111-4111-8111-111111111111";

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Acme Production",
          vaults: [
            { name: "kv-shop", secrets },
            { name: "kv-sealed", secrets },
          ],
        },
        { name: "Acme Finance", id: FINANCE_ID, denied: true },
      ],
    },
  });
});
afterAll(() => service?.stop());

/** Runs a scan and returns its output in the terminal. */
async function scanOutput(): Promise<string> {
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  const bar = vi.spyOn(process.stdout, "write").mockImplementation(() => true);
  try {
    await runScan(service.url, ADMIN);
    return log.mock.calls.flat().join("\n");
  } finally {
    log.mockRestore();
    bar.mockRestore();
  }
}

test("the output names a subscription that could not be read, with the reason and the missing role", async () => {
  const text = await scanOutput();
  expect(text).toContain("The scan is partial: 2 assets in 2 vaults of 1 of 2 subscriptions.");
  expect(text).toContain(
    `Coverage: 1 of 2 subscriptions, 2 of 2 known vaults. 1 gap; the page names each with its fix: ${service.url}/`,
  );
  const [, failures] = text.split("The scan could not read:\n");
  expect(failures!.split("\n")[0]).toBe(
    `  Subscription Acme Finance (${FINANCE_ID}): accessDenied. Give the service's identity the custom role Credential Lifecycle Inventory Reader on the subscription (the deployment template for monitored subscriptions creates and assigns it, see Permissions in the documentation).`,
  );
});

test("the output lists unread subscriptions before unread vaults", async () => {
  service.cloud.control.addFault({ match: { vault: "kv-sealed" }, action: { kind: "deny" } });
  const [, failures] = (await scanOutput()).split("The scan could not read:\n");
  expect(failures!.split("\n").slice(0, 3)).toEqual([
    expect.stringMatching(/^ {2}Subscription Acme Finance /),
    expect.stringMatching(/^ {2}Vault kv-sealed: accessDenied\. /),
    "",
  ]);
});
