// Settings over HTTP on running hosts: their sources, and how fast a change takes effect.
import { afterAll, beforeAll, expect, test } from "vitest";
import { SECOND_MS } from "../../shared/platform/time.ts";
import {
  CATEGORIES,
  DEFINITIONS,
  SETTING_KEYS,
  type SettingKey,
  type SettingValue,
  type SettingValues,
} from "../../shared/settings/definitions.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";

const storageClock = movedClock();
let service: Service;
beforeAll(async () => {
  service = await Service.start({ company: "small", storageEnv: storageClock.environment });
  await service.scan();
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

/** For each source of settings a valid value of each setting. Numbers differ from the default and between the sources. */
const VALUES_BY_SOURCE: Record<"environment" | "appConfiguration" | "override", Record<SettingKey, SettingValue>> = {
  environment: createValues(11, false, "WARNING"),
  appConfiguration: createValues(13, true, "DEBUG"),
  override: createValues(15, false, "ERROR"),
};

function createValues(
  days: number,
  enabled: boolean,
  logLevel: SettingValues["logLevel"],
): Record<SettingKey, SettingValue> {
  return {
    discoveryMaxWorkers: days,
    discoveryScanTimeout: 100 + days,
    enableNotifications: enabled,
    enableComplianceScanning: enabled,
    watchAll: enabled,
    requirePasswordChange: enabled,
    unusedPasswordDays: 20 + days,
    // Any other value would restrict the administrator of this test.
    requireSecondFactor: "none",
    requireStepUp: false,
    requireApproval: false,
    logLevel,
    defaultThresholdDays: 100 + days,
    criticalExpiryDays: days,
    warningExpiryDays: 100 + days,
    unusedSecretDays: 60 + days,
    auditRetentionDays: 500 + days,
    rotationRetentionDays: 600 + days,
    scanRetentionDays: 700 + days,
    outOfScopeRetentionDays: 800 + days,
    rotationTriggerDays: 40 + days,
    defaultValidityDays: 200 + days,
  };
}

/** Returns the effective value of each setting, and its source. */
async function readEffectiveSettings(url: string): Promise<Record<string, { value: SettingValue; source: string }>> {
  const { body } = await service.admin("GET", `${url}/api/settings/all`);
  const settings: { key: string; value: SettingValue; source: string }[] = Object.values(CATEGORIES).flatMap(
    (member) => body[member],
  );
  return Object.fromEntries(settings.map(({ key, value, source }) => [key, { value, source }]));
}

const withSource = (settings: Record<SettingKey, SettingValue>, source: string) =>
  Object.fromEntries(SETTING_KEYS.map((key) => [key, { value: settings[key], source }]));
const DEFAULTS = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as typeof VALUES_BY_SOURCE.override;

const statusOf = async (url: string, id: string) =>
  (await service.admin("GET", `${url}/api/assets/discovery/assets/${id}`)).body.status;

test("a changed criticalExpiryDays takes effect at once, and within 30 seconds on another instance", async () => {
  const [firstHost, secondHost] = [service.url, (await service.addHost()).url];
  // Expires in 12 days: `warning` by the default of criticalExpiryDays (7), and `critical` after the change to 14.
  const asset = "kv-shop-prod.key.ledger";
  expect(await Promise.all([statusOf(firstHost, asset), statusOf(secondHost, asset)])).toEqual(["warning", "warning"]);
  const isInViolation = async (url: string) => {
    const { body } = await service.admin("GET", `${url}/compliance/violations?severity=high&limit=1000`);
    return body.items.some(({ id }: { id: string }) => id === `key-near-expiry-critical.${asset}`);
  };
  expect(await isInViolation(firstHost)).toBe(false);

  const response = await service.admin("PUT", `${firstHost}/api/settings/compliance-policy`, {
    criticalExpiryDays: 14,
  });
  expect(response.status).toBe(200);
  expect(await statusOf(firstHost, asset)).toBe("critical");

  const list = `/api/assets/discovery/assets?status=critical&type=key`;
  await storageClock.add(30 * SECOND_MS);
  await statusOf(secondHost, asset); // The host learns the moved storage time from the response's Date header.
  expect(await statusOf(secondHost, asset)).toBe("critical");
  for (const url of [firstHost, secondHost]) {
    const { body } = await service.admin("GET", url + list);
    expect(body.items.map(({ id }: { id: string }) => id)).toEqual([asset]);
  }
  await service.waitForEmptyQueues();
  expect(await isInViolation(secondHost)).toBe(true);
  expect(await isInViolation(firstHost)).toBe(true);
});

test("logLevel takes effect without a restart", async () => {
  const countEvaluationLines = () =>
    service.hosts[0]!.lines.filter((line) => line.includes("A vault was evaluated")).length;
  await service.admin("PUT", "/api/settings/logging", { logLevel: "INFO" });
  const linesAtInfo = countEvaluationLines();
  expect((await service.admin("POST", "/compliance/evaluate")).status).toBe(200);
  expect(countEvaluationLines()).toBe(linesAtInfo);
  await service.admin("PUT", "/api/settings/logging", { logLevel: "DEBUG" });
  expect((await service.admin("POST", "/compliance/evaluate")).status).toBe(200);
  await service.hosts[0]!.waitForLine((line) => line.includes("A vault was evaluated"));
});

test("a setting's value comes from its override, else App Configuration, else the environment, else the default", async () => {
  await service.admin("DELETE", "/api/settings/all");
  const hostWithoutEnvironment = service.url;
  const environment = Object.fromEntries(
    SETTING_KEYS.map((key) => [DEFINITIONS[key].environmentVariable, String(VALUES_BY_SOURCE.environment[key])]),
  );
  const { url: hostWithEnvironment } = await service.addHost(environment);
  expect(await readEffectiveSettings(hostWithoutEnvironment)).toEqual(withSource(DEFAULTS, "default"));
  expect(await readEffectiveSettings(hostWithEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.environment, "environment"),
  );

  const setAppConfiguration = (settings: Record<SettingKey, SettingValue> | undefined) => {
    for (const key of SETTING_KEYS) {
      service.cloud.control.setConfiguration(`credential-lifecycle:${key}`, settings && String(settings[key]));
    }
  };
  setAppConfiguration(VALUES_BY_SOURCE.appConfiguration);
  expect(await readEffectiveSettings(hostWithoutEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.appConfiguration, "appConfiguration"),
  );
  expect(await readEffectiveSettings(hostWithEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.appConfiguration, "appConfiguration"),
  );

  for (const category of Object.keys(CATEGORIES)) {
    const keys = SETTING_KEYS.filter((key) => DEFINITIONS[key].category === category);
    const changes = Object.fromEntries(keys.map((key) => [key, VALUES_BY_SOURCE.override[key]]));
    expect((await service.admin("PUT", `${hostWithoutEnvironment}/api/settings/${category}`, changes)).status).toBe(
      200,
    );
  }
  expect(await readEffectiveSettings(hostWithoutEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.override, "override"),
  );
  expect(await readEffectiveSettings(hostWithEnvironment)).toEqual(withSource(VALUES_BY_SOURCE.override, "override"));

  // Remove the values of each source again, starting with the override.
  const removed = await service.admin("DELETE", "/api/settings/performance/discoveryMaxWorkers");
  expect(removed.body.setting).toMatchObject({
    value: VALUES_BY_SOURCE.appConfiguration.discoveryMaxWorkers,
    source: "appConfiguration",
  });
  const removedAll = await service.admin("DELETE", "/api/settings/all");
  expect(removedAll.body.keys).toHaveLength(SETTING_KEYS.length - 1);
  expect(await readEffectiveSettings(hostWithEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.appConfiguration, "appConfiguration"),
  );
  setAppConfiguration(undefined);
  expect(await readEffectiveSettings(hostWithEnvironment)).toEqual(
    withSource(VALUES_BY_SOURCE.environment, "environment"),
  );
  expect(await readEffectiveSettings(hostWithoutEnvironment)).toEqual(withSource(DEFAULTS, "default"));
});
