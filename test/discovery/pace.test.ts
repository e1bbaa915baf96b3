// A scan sends at most a quarter of the requests that Azure allows for a vault in ten seconds, and still reads everything.
import { afterAll, expect, test } from "vitest";
import { Service } from "../support/service.ts";

/** Two requests each: 800, of which 500 fit into a period. */
const hardwareKeys = 400;
/** One request each, of which 1,000 fit into a period. */
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
