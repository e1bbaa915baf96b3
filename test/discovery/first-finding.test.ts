/*
 * After a deployment, the first finding appears without any further command: the first scan starts by itself, reads the vaults
 * and evaluates them. The service runs with the schedules and settings that the templates leave at their defaults.
 */
import { afterAll, expect, test } from "vitest";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { Service } from "../support/service.ts";

/** Maximum time from the start of the app to the first finding. */
const PROMISED_MS = 120 * SECOND_MS;

/** Settings that the tests' service sets and the templates do not. */
const TEST_SETTINGS = /_SCHEDULE$|^(SCHEDULE_JITTER_SECONDS|FIRST_SCAN|RATE_LIMIT_PER_(MINUTE|HOUR))$/;

let service: Service;
afterAll(() => service?.stop());

test("the first finding appears within two minutes of the start, without any command", {
  timeout: 2 * PROMISED_MS,
}, async () => {
  service = await Service.start({ company: "acme", hosts: 0, schedules: true });
  for (const name of Object.keys(service.environment)) if (TEST_SETTINGS.test(name)) delete service.environment[name];
  const startedAt = performance.now();
  await service.addHost();
  await expect
    .poll(async () => (await service.admin("GET", "/compliance/violations?limit=1")).body.items?.length, {
      timeout: PROMISED_MS,
      interval: 2 * SECOND_MS,
    })
    .toBe(1);
  console.log(
    `The first finding appeared ${((performance.now() - startedAt) / SECOND_MS).toFixed(0)} s after the start.`,
  );
  const [scan] = await service.listAll("/api/assets/discovery/scans");
  expect(scan).toMatchObject({ mode: "full", trigger: "schedule", requestedBy: "system" });
});
