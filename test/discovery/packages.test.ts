// A scan uses the clients of all five Azure SDK packages, so that an incompatible update of one of them is noticed.
import { afterAll, expect, test } from "vitest";
import { Service } from "../support/service.ts";

const vault = { name: "kv-one", generate: { secrets: 1, keys: 1, certificates: 1 } };
const service = await Service.start({ company: { subscriptions: [{ name: "One", vaults: [vault] }] } });
afterAll(() => service.stop());

test("a scan sends requests with all five Azure SDK packages", async () => {
  service.cloud.control.resetCounts();
  expect(await service.scan({ mode: "full" })).toMatchObject({ status: "completed" });
  const packages = new Map<string, Set<string>>();
  for (const { operation, vault: vaultName, userAgent = "" } of service.cloud.control.requests()) {
    // The service's own key vault is not scanned. The minute timer reads and writes the state of signed rows there.
    if (vaultName === "kv-lifecycle-service") continue;
    const [, name] = /azsdk-js-((?:arm|keyvault)-[a-z-]+)\/\d/.exec(userAgent) ?? [];
    if (name) packages.set(name, (packages.get(name) ?? new Set()).add(operation));
  }
  const calls = Object.fromEntries([...packages].map(([name, operations]) => [name, [...operations].sort()]));
  expect(calls).toEqual({
    "arm-keyvault": ["arm.listVaults"],
    "arm-resources-subscriptions": ["arm.listSubscriptions"],
    "keyvault-certificates": [
      "keyvault.getCertificate",
      "keyvault.listCertificateVersions",
      "keyvault.listCertificates",
    ],
    "keyvault-keys": ["keyvault.getKey", "keyvault.getRotationPolicy", "keyvault.listKeys"],
    "keyvault-secrets": ["keyvault.listSecrets"],
  });
});
