import { afterAll, beforeAll, expect, test } from "vitest";
import { knownValues, sendGenerated } from "../support/generated-requests.ts";
import { licence } from "../support/licence.ts";
import { SEED } from "../support/sampling.ts";
import { Service } from "../support/service.ts";

// `npm run fuzz` sends more requests.

let service: Service;
beforeAll(async () => {
  service = await Service.start({ env: { LICENSE_KEY: await licence() } });
});
afterAll(() => service.stop());

test(`300 generated requests (seed ${SEED}) cause no 500, and every answer matches its description`, async () => {
  const known = await knownValues(service);
  const { statuses, succeeded } = await sendGenerated(service, { seed: SEED, count: 300, known });
  // If all requests were rejected alike, the test would prove little.
  expect(statuses["200"]).toBeGreaterThan(30);
  expect(statuses["400"]).toBeGreaterThan(30);
  expect(succeeded.size).toBeGreaterThan(10);
});
