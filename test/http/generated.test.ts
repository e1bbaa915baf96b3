import { afterAll, beforeAll, expect, test } from "vitest";
import { readExistingIds, sendGenerated } from "../support/generated-requests.ts";
import { licence } from "../support/licence.ts";
import { SEED } from "../support/sampling.ts";
import { Service } from "../support/service.ts";

// Sends random requests to every endpoint of a running service. `npm run fuzz` sends more of them.

let service: Service;
beforeAll(async () => {
  service = await Service.start({ env: { LICENSE_KEY: await licence() } });
});
afterAll(() => service.stop());

test(`300 generated requests (seed ${SEED}) cause no 500, and every answer matches its description`, async () => {
  const existingIds = await readExistingIds(service);
  const { statuses, succeeded } = await sendGenerated(service, { seed: SEED, count: 300, existingIds });
  // Controls: requests with valid and with invalid values both reached the handlers' validation, of many endpoints.
  expect(statuses["200"]).toBeGreaterThan(30);
  expect(statuses["400"]).toBeGreaterThan(30);
  expect(succeeded.size).toBeGreaterThan(10);
});
