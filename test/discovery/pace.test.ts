// A scan sends at most a quarter of the requests that Azure allows for a vault in ten seconds, and still reads everything.
import { afterAll, expect, test } from "vitest";
import { Service } from "../support/service.ts";

/** Number of hardware keys. Each needs two requests, 800 in total, of which 500 are allowed in ten seconds. */
const hardwareKeys = 400;
/** Number of certificates. Each needs one request. 1,000 are allowed in ten seconds. */
const certificates = 1_100;
const service = await Service.start({
  company: {
    subscriptions: [
      {
        name: "One",
        vaults: [
          { name: "kv-hardware", sku: "premium", generate: { secrets: 0, keys: hardwareKeys, certificates: 0 } },
          { name: "kv-certificates", sku: "standard", generate: { secrets: 0, keys: 0, certificates } },
        ],
      },
    ],
  },
});
afterAll(() => service.stop());

test("a scan sends at most 500 requests for hardware keys and 1,000 requests to a vault in ten seconds", async () => {
  service.cloud.control.resetCounts();
  expect(await service.scan({ mode: "full" })).toMatchObject({ status: "completed" });

  // Both vaults need more requests than one period allows. Whether they are sent that fast depends on the machine.
  const counts = service.cloud.control.counts();
  expect(counts["keyvault.getKey"]).toBe(hardwareKeys);
  expect(counts["keyvault.getRotationPolicy"]).toBe(hardwareKeys);
  expect(counts["keyvault.getCertificate"]).toBe(certificates);
  const busiest = service.cloud.control.busiestTenSeconds();
  expect(busiest["kv-hardware/keys"]).toBeLessThanOrEqual(500);
  expect(busiest["kv-certificates"]).toBeLessThanOrEqual(1_000);
}, 120_000);
