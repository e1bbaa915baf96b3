import { initialKey } from "simulated-cloud/arm/resource-keys.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { runRotations } from "../../infra/local/first-rotation.ts";
import { runScan } from "../../infra/local/first-scan.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";

// Tests the output of `npm start` about its first scan and, with a license, its first rotation. The simulated company has two subscriptions, and one denies access.

const secrets = [{ name: "db", expiresInDays: 20 }];
const FINANCE_ID = "f1111111-1111-4111-8111-111111111111";

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    shortWaits: true,
    env: { LICENSE_KEY: await licence() },
    company: {
      subscriptions: [
        {
          name: "Acme Production",
          vaults: [
            {
              name: "kv-shop",
              secrets: [
                ...secrets,
                {
                  name: "storage-key",
                  value: initialKey("Microsoft.Storage/storageAccounts", "stshop", "key1"),
                  expiresInDays: 5,
                },
              ],
            },
            { name: "kv-sealed", secrets },
          ],
          resources: [{ type: "Microsoft.Storage/storageAccounts", name: "stshop", kind: "StorageV2" }],
        },
        { name: "Acme Finance", id: FINANCE_ID, denied: true },
      ],
    },
  });
});
afterAll(() => service?.stop());

/** Runs a step of `npm start` and returns its output in the terminal. */
async function outputOf(step: typeof runScan): Promise<string> {
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  const bar = vi.spyOn(process.stdout, "write").mockImplementation(() => true);
  try {
    await step(service.url, ADMIN);
    return log.mock.calls.flat().join("\n");
  } finally {
    log.mockRestore();
    bar.mockRestore();
  }
}

test("the output names a subscription that could not be read, with the reason and the missing role", async () => {
  const text = await outputOf(runScan);
  expect(text).toContain("The scan is partial: 3 assets in 2 vaults of 1 of 2 subscriptions.");
  expect(text).toContain(
    `Coverage: 1 of 2 subscriptions, 2 of 2 known vaults, 0 of 0 applications. 1 gap; the page names each with its fix: ${service.url}/`,
  );
  const [, failures] = text.split("The scan could not read:\n");
  expect(failures!.split("\n")[0]).toBe(
    `  Subscription Acme Finance (${FINANCE_ID}): accessDenied. Give the service's identity the custom role Credential Lifecycle Inventory Reader on the subscription (the deployment template for monitored subscriptions creates and assigns it, see Permissions in the documentation).`,
  );
});

test("a key of a storage account is found and rotated once, and each completed step is printed", async () => {
  const text = await outputOf(runRotations);
  expect(text).toContain("Rotating key1 of the storage account stshop, stored in kv-shop.secret.storage-key: ");
  for (const step of ["create", "prove", "publish", "verify"]) expect(text).toContain(`  ✓ ${step}`);
  expect(text).toContain("  The rotation is overlapping; the new key id is key2.");
  expect(await outputOf(runRotations)).toBe("");
  const { control } = service.cloud;
  const { id } = control.consumers.resources().find((one) => one.id.endsWith("/stshop"))!;
  expect(control.consumers.keys(id).at(-1)).toMatchObject({
    key: "key2",
    value: control.secretValue("kv-shop", "storage-key"),
  });
});

test("the output lists unread subscriptions before unread vaults", async () => {
  service.cloud.control.addFault({ match: { vault: "kv-sealed" }, action: { kind: "deny" } });
  const [, failures] = (await outputOf(runScan)).split("The scan could not read:\n");
  expect(failures!.split("\n").slice(0, 3)).toEqual([
    expect.stringMatching(/^ {2}Subscription Acme Finance /),
    expect.stringMatching(/^ {2}Vault kv-sealed: accessDenied\. /),
    "",
  ]);
});
