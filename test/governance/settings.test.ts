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

/** A value that is valid for every setting, and differs from its default and from the other levels. */
const LEVELS: Record<"environment" | "appConfiguration" | "override", Record<SettingKey, SettingValue>> = {
  environment: values(11, false, "WARNING"),
  appConfiguration: values(13, true, "DEBUG"),
  override: values(15, false, "ERROR"),
};

function values(days: number, on: boolean, logLevel: SettingValues["logLevel"]): Record<SettingKey, SettingValue> {
  return {
    discoveryMaxWorkers: days,
    discoveryScanTimeout: 100 + days,
    enableNotifications: on,
    enableComplianceScanning: on,
    watchAll: on,
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

/** Returns the value in force and its source. */
async function inForce(url: string): Promise<Record<string, { value: SettingValue; source: string }>> {
  const { body } = await service.admin("GET", `${url}/api/settings/all`);
  const settings: { key: string; value: SettingValue; source: string }[] = Object.values(CATEGORIES).flatMap(
    (member) => body[member],
  );
  return Object.fromEntries(settings.map(({ key, value, source }) => [key, { value, source }]));
}

const all = (wanted: Record<SettingKey, SettingValue>, source: string) =>
  Object.fromEntries(SETTING_KEYS.map((key) => [key, { value: wanted[key], source }]));
const DEFAULTS = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as typeof LEVELS.override;

const statusOf = async (url: string, id: string) =>
  (await service.admin("GET", `${url}/api/assets/discovery/assets/${id}`)).body.status;

test("a changed criticalExpiryDays changes statuses at once, violations soon after, and another instance within 30 seconds", async () => {
  const [here, there] = [service.url, (await service.addHost()).url];
  const asset = "kv-shop-prod.key.ledger"; // expires in 12 days
  expect(await Promise.all([statusOf(here, asset), statusOf(there, asset)])).toEqual(["warning", "warning"]);
  const violated = async (url: string) => {
    const { body } = await service.admin("GET", `${url}/compliance/violations?severity=high&limit=1000`);
    return body.items.some(({ id }: { id: string }) => id === `key-near-expiry-critical.${asset}`);
  };
  expect(await violated(here)).toBe(false);

  const answer = await service.admin("PUT", `${here}/api/settings/compliance-policy`, { criticalExpiryDays: 14 });
  expect(answer.status).toBe(200);
  expect(await statusOf(here, asset)).toBe("critical");

  const list = `/api/assets/discovery/assets?status=critical&type=key`;
  await storageClock.add(30 * SECOND_MS);
  await statusOf(there, asset); // Learns the store's time from a response.
  expect(await statusOf(there, asset)).toBe("critical");
  for (const url of [here, there]) {
    const { body } = await service.admin("GET", url + list);
    expect(body.items.map(({ id }: { id: string }) => id)).toEqual([asset]);
  }
  await service.settled();
  expect(await violated(there)).toBe(true);
  expect(await violated(here)).toBe(true);
});

test("logLevel takes effect without a restart", async () => {
  const evaluated = () => service.hosts[0]!.lines.filter((line) => line.includes("A vault was evaluated")).length;
  await service.admin("PUT", "/api/settings/logging", { logLevel: "INFO" });
  const before = evaluated();
  expect((await service.admin("POST", "/compliance/evaluate")).status).toBe(200);
  expect(evaluated()).toBe(before);
  await service.admin("PUT", "/api/settings/logging", { logLevel: "DEBUG" });
  expect((await service.admin("POST", "/compliance/evaluate")).status).toBe(200);
  await service.hosts[0]!.line((line) => line.includes("A vault was evaluated"));
});

test("every setting has the value of its override, else App Configuration, else the environment, else the default", async () => {
  await service.admin("DELETE", "/api/settings/all");
  const plain = service.url;
  const environment = Object.fromEntries(
    SETTING_KEYS.map((key) => [DEFINITIONS[key].environmentVariable, String(LEVELS.environment[key])]),
  );
  const { url: set } = await service.addHost(environment);
  expect(await inForce(plain)).toEqual(all(DEFAULTS, "default"));
  expect(await inForce(set)).toEqual(all(LEVELS.environment, "environment"));

  const configure = (to: Record<SettingKey, SettingValue> | undefined) => {
    for (const key of SETTING_KEYS) {
      service.cloud.control.setConfiguration(`credential-lifecycle:${key}`, to && String(to[key]));
    }
  };
  configure(LEVELS.appConfiguration);
  expect(await inForce(plain)).toEqual(all(LEVELS.appConfiguration, "appConfiguration"));
  expect(await inForce(set)).toEqual(all(LEVELS.appConfiguration, "appConfiguration"));

  for (const category of Object.keys(CATEGORIES)) {
    const keys = SETTING_KEYS.filter((key) => DEFINITIONS[key].category === category);
    const changes = Object.fromEntries(keys.map((key) => [key, LEVELS.override[key]]));
    expect((await service.admin("PUT", `${plain}/api/settings/${category}`, changes)).status).toBe(200);
  }
  expect(await inForce(plain)).toEqual(all(LEVELS.override, "override"));
  expect(await inForce(set)).toEqual(all(LEVELS.override, "override"));

  // Removes the levels again, starting with the override.
  const removed = await service.admin("DELETE", "/api/settings/performance/discoveryMaxWorkers");
  expect(removed.body.setting).toMatchObject({
    value: LEVELS.appConfiguration.discoveryMaxWorkers,
    source: "appConfiguration",
  });
  const rest = await service.admin("DELETE", "/api/settings/all");
  expect(rest.body.keys).toHaveLength(SETTING_KEYS.length - 1);
  expect(await inForce(set)).toEqual(all(LEVELS.appConfiguration, "appConfiguration"));
  configure(undefined);
  expect(await inForce(set)).toEqual(all(LEVELS.environment, "environment"));
  expect(await inForce(plain)).toEqual(all(DEFAULTS, "default"));
});
