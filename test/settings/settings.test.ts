import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AppConfiguration } from "../../shared/platform/azure/app-configuration.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import {
  CATEGORY_NAMES,
  type Category,
  DEFINITIONS,
  keysOf,
  SETTING_KEYS,
  type SettingKey,
} from "../../shared/settings/definitions.ts";
import {
  createSettings,
  OVERRIDES,
  SETTINGS_PARTITION,
  type SettingDescription,
  SettingsRow,
} from "../../shared/settings/settings.ts";
import { recordingLog } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "./support.ts";

// Tests of the runtime settings: which source of a value has precedence, changes by administrators (overrides), and caching.

let azurite: TestStorage;
let proxy: TableProxy;
let tables: Tables;

beforeAll(async () => {
  azurite = await openStorage(["settings"]);
  proxy = await startTableProxy(azurite.connectionString());
  tables = createTables({ connectionString: proxy.connectionString });
});
afterAll(async () => {
  await proxy.stop();
  await azurite.stop();
});
beforeEach(async () => {
  await tables.put(SettingsRow, SETTINGS_PARTITION, OVERRIDES, { overrides: {} });
  proxy.requests.length = 0;
});

/** Creates the settings of one instance of the service. All instances share the table. */
function createInstance(options: {
  environment?: Record<string, string>;
  appConfiguration?: AppConfiguration;
  clock?: ReturnType<typeof stillClock>;
  tables?: Tables;
}) {
  const audit = recordingAudit();
  const log = recordingLog();
  const clock = options.clock ?? stillClock();
  const { appConfiguration } = options;
  const config = configWith(options.environment);
  return {
    audit,
    log,
    clock,
    settings: createSettings({ tables: options.tables ?? tables, config, clock, audit, log, appConfiguration }),
  };
}

const appConfigurationWith = (values: Record<string, string>): AppConfiguration => ({
  read: async () => new Map(Object.entries(values)),
});

const unreachableFailure = () =>
  new CloudFailure("unreachable", "Could not read settings.", { remedy: "Look at its network." });

async function describeSetting(
  settings: ReturnType<typeof createSettings>,
  key: SettingKey,
): Promise<SettingDescription> {
  return (await settings.describe(DEFINITIONS[key].category)).settings.find((setting) => setting.key === key)!;
}

/** Values of each setting that differ from its default: in the environment, in App Configuration, and as an override. */
const SAMPLES: Record<SettingKey, [string, string, string | number | boolean]> = {
  discoveryMaxWorkers: ["2", "3", 4],
  discoveryScanTimeout: ["60", "61", 86_400],
  enableNotifications: ["false", "true", false],
  enableComplianceScanning: ["false", "true", false],
  watchAll: ["false", "true", false],
  requirePasswordChange: ["true", "false", true],
  unusedPasswordDays: ["1", "2", 365],
  requireSecondFactor: ["administrators", "everyone", "administrators"],
  requireStepUp: ["true", "false", true],
  requireApproval: ["true", "false", true],
  logLevel: ["DEBUG", "WARNING", "ERROR"],
  defaultThresholdDays: ["1", "2", 365],
  criticalExpiryDays: ["0", "1", 2],
  warningExpiryDays: ["31", "32", 730],
  unusedSecretDays: ["7", "8", 365],
  auditRetentionDays: ["1", "2", 3650],
  rotationRetentionDays: ["1", "2", 3650],
  scanRetentionDays: ["1", "2", 3650],
  outOfScopeRetentionDays: ["1", "2", 3650],
  rotationTriggerDays: ["1", "2", 365],
  defaultValidityDays: ["1", "2", 730],
};

describe("precedence", () => {
  test.each(SETTING_KEYS)(
    "%s has the value of its override, else of App Configuration, else of the environment, else its default",
    async (key) => {
      const [inEnvironment, inAppConfiguration, override] = SAMPLES[key];
      const { category, environmentVariable, default: defaultValue } = DEFINITIONS[key];
      const environment = { [environmentVariable]: inEnvironment };
      const appConfiguration = appConfigurationWith({ [key]: inAppConfiguration });

      expect(await describeSetting(createInstance({}).settings, key)).toMatchObject({
        value: defaultValue,
        source: "default",
      });
      const fromEnvironment = await describeSetting(createInstance({ environment }).settings, key);
      expect([String(fromEnvironment.value), fromEnvironment.source]).toEqual([inEnvironment, "environment"]);
      const instance = createInstance({ environment, appConfiguration });
      const fromAppConfiguration = await describeSetting(instance.settings, key);
      expect([String(fromAppConfiguration.value), fromAppConfiguration.source]).toEqual([
        inAppConfiguration,
        "appConfiguration",
      ]);

      await instance.settings.update(category, { [key]: override }, admin);
      expect(await describeSetting(instance.settings, key)).toMatchObject({
        value: override,
        source: "override",
        updatedAt: "2026-11-21T10:00:00.000Z",
        updatedBy: "ada",
      });
      expect((await instance.settings.values())[key]).toBe(override);

      await instance.settings.remove(category, key, admin);
      expect(await describeSetting(instance.settings, key)).toMatchObject({
        source: "appConfiguration",
        updatedAt: null,
        updatedBy: null,
      });
    },
  );

  test("an invalid value in App Configuration is ignored, and the reason is logged once without the value", async () => {
    const { settings, log, clock } = createInstance({
      environment: { DISCOVERY_MAX_WORKERS: "5" },
      appConfiguration: appConfigurationWith({
        discoveryMaxWorkers: "pa55word",
        enableNotifications: "TRUE",
        logLevel: "info",
      }),
    });
    const reason = "must be a whole number from 1 to 200";
    expect(await describeSetting(settings, "discoveryMaxWorkers")).toMatchObject({
      value: 5,
      source: "environment",
      ignored: [{ source: "appConfiguration", reason }],
    });
    clock.advance(MINUTE_MS);
    await settings.values();
    expect(log.lines.filter((line) => line.includes(reason))).toHaveLength(1);
    expect(log.lines).toHaveLength(3);
    expect(log.lines.join()).not.toContain("pa55word");
  });

  test("a stored override that is no longer valid is ignored and reported", async () => {
    const metadata = { updatedAt: "2025-01-01T00:00:00.000Z", updatedBy: "bo" };
    await tables.put(SettingsRow, SETTINGS_PARTITION, OVERRIDES, {
      overrides: {
        discoveryMaxWorkers: { value: 9999, ...metadata },
        logLevel: { value: "TRACE", ...metadata },
        gone: { value: 1, ...metadata },
      },
    });
    const { settings } = createInstance({});
    expect(await settings.values()).toMatchObject({ discoveryMaxWorkers: 10, logLevel: "INFO" });
    expect((await describeSetting(settings, "logLevel")).ignored).toEqual([
      { source: "override", reason: "must be one of DEBUG, INFO, WARNING, ERROR" },
    ]);
    expect(await settings.removeAll(admin)).toEqual(["discoveryMaxWorkers", "logLevel"]);
    expect((await tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES))?.overrides).toEqual({});
  });
});

describe("changing", () => {
  test.each(SETTING_KEYS)("%s accepts its limits and rejects values beyond them", async (key) => {
    const { settings, audit } = createInstance({});
    const definition = DEFINITIONS[key];
    const [valid, invalid]: [unknown[], unknown[]] =
      definition.type === "integer"
        ? [
            [definition.minimum, definition.maximum],
            [definition.minimum - 1, definition.maximum + 1, definition.minimum + 0.5, "5", true, null, [1]],
          ]
        : definition.type === "boolean"
          ? [
              [false, true],
              ["true", 1, null],
            ]
          : [[...definition.allowed], ["info", "TRACE", 1, null]];
    for (const value of invalid) {
      const problem = await problemOf(settings.update(definition.category, { [key]: value }, admin));
      expect(problem.code).toBe("invalidRequest");
      expect(problem.errors?.[0]?.path).toBe(`body.${key}`);
    }
    expect(audit.events).toEqual([]);
    // The two expiry thresholds limit each other, so the other threshold gets a value that allows all values of this one.
    const otherThreshold =
      key === "criticalExpiryDays"
        ? { warningExpiryDays: 730 }
        : key === "warningExpiryDays"
          ? { criticalExpiryDays: 0 }
          : {};
    for (const value of valid) await settings.update(definition.category, { [key]: value, ...otherThreshold }, admin);
    expect((await settings.values())[key]).toBe(valid.at(-1));
  });

  test("a request is applied completely or not at all", async () => {
    const { settings, audit } = createInstance({});
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, discoveryScanTimeout: 1 }, admin));
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, logLevel: "DEBUG" }, admin));
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, nonsense: 1 }, admin));
    expect((await settings.values()).discoveryMaxWorkers).toBe(10);
    expect(audit.events).toEqual([]);
  });

  test("a change is rejected if criticalExpiryDays would not be below warningExpiryDays", async () => {
    const { settings } = createInstance({});
    const updatePolicy = (changes: object) => settings.update("compliance-policy", { ...changes }, admin);
    for (const changes of [
      { criticalExpiryDays: 30 },
      { warningExpiryDays: 7 },
      { criticalExpiryDays: 40, warningExpiryDays: 40 },
    ]) {
      const problem = await problemOf(updatePolicy(changes));
      expect([problem.code, problem.errors?.[0]?.path]).toEqual(["invalidRequest", `body.${Object.keys(changes)[0]}`]);
    }
    await updatePolicy({ criticalExpiryDays: 40, warningExpiryDays: 60 });
    const problem = await problemOf(settings.remove("compliance-policy", "warningExpiryDays", admin));
    expect(problem.code).toBe("conflict");
    expect(await settings.values()).toMatchObject({ criticalExpiryDays: 40, warningExpiryDays: 60 });
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    await settings.remove("compliance-policy", "warningExpiryDays", admin);
    expect(await settings.values()).toMatchObject({ criticalExpiryDays: 7, warningExpiryDays: 30 });
  });

  test("concurrent changes of both thresholds on two instances do not contradict each other", async () => {
    const [first, second] = [createInstance({}), createInstance({})];
    await first.settings.values();
    await second.settings.values();
    const results = await Promise.allSettled([
      first.settings.update("compliance-policy", { criticalExpiryDays: 25 }, admin),
      second.settings.update("compliance-policy", { warningExpiryDays: 20 }, admin),
    ]);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const { criticalExpiryDays, warningExpiryDays } = await createInstance({}).settings.values();
    expect(criticalExpiryDays).toBeLessThan(warningExpiryDays);
  });

  test("concurrent changes of two instances are both stored", async () => {
    const [first, second] = [createInstance({}), createInstance({})];
    await Promise.all([
      first.settings.update("performance", { discoveryMaxWorkers: 50 }, admin),
      second.settings.update("logging", { logLevel: "DEBUG" }, admin),
    ]);
    expect(await createInstance({}).settings.values()).toMatchObject({ discoveryMaxWorkers: 50, logLevel: "DEBUG" });
  });

  test("an override can be removed only if it exists in the category", async () => {
    const { settings } = createInstance({});
    expect((await problemOf(settings.remove("logging", "logLevel", admin))).code).toBe("notFound");
    expect((await problemOf(settings.remove("logging", "discoveryMaxWorkers", admin))).code).toBe("notFound");
    expect((await problemOf(settings.remove("logging", "__proto__", admin))).code).toBe("notFound");
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    expect(await settings.remove("logging", "logLevel", admin)).toMatchObject({ value: "INFO", source: "default" });
  });

  test("removing all overrides leaves only defaults", async () => {
    const { settings } = createInstance({});
    expect(await settings.removeAll(admin)).toEqual([]);
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    await settings.update("compliance-policy", { criticalExpiryDays: 50, warningExpiryDays: 60 }, admin);
    expect(await settings.removeAll(admin)).toEqual(["logLevel", "criticalExpiryDays", "warningExpiryDays"]);
    const { settings: all } = await settings.describeAll();
    const sources = Object.values(all).flatMap((category) => category.map((setting) => setting.source));
    expect(new Set(sources)).toEqual(new Set(["default"]));
  });

  test("a stale ETag of the category is rejected", async () => {
    const { settings } = createInstance({});
    const { etag } = await settings.describe("performance");
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    const changed = await settings.update("performance", { discoveryMaxWorkers: 11 }, admin, etag);
    expect(changed.etag).not.toBe(etag);
    for (const staleChange of [
      settings.update("performance", { discoveryMaxWorkers: 12 }, admin, etag),
      settings.remove("performance", "discoveryMaxWorkers", admin, etag),
      settings.removeAll(admin, etag),
    ]) {
      expect((await problemOf(staleChange)).code).toBe("preconditionFailed");
    }
    await settings.update("performance", { discoveryMaxWorkers: 12 }, admin, "*");
    await settings.removeAll(admin, (await settings.describeAll()).etag);
    expect((await settings.values()).discoveryMaxWorkers).toBe(10);
  });

  test("a change is recorded in the audit log with its old and new values, as an intent and as a success", async () => {
    const { settings, audit } = createInstance({ environment: { LOG_LEVEL: "ERROR" } });
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    const entry = {
      type: "settings.changed",
      caller: admin,
      target: { type: "settings", id: "logging" },
      before: { logLevel: { value: "ERROR", source: "environment" } },
      after: { logLevel: { value: "DEBUG", source: "override" } },
    };
    expect(audit.events).toEqual([
      { ...entry, outcome: "intent" },
      { ...entry, outcome: "success" },
    ]);
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    expect(audit.events).toHaveLength(2);
    await settings.remove("logging", "logLevel", admin);
    expect(audit.events.at(-1)).toMatchObject({
      target: { id: "logging/logLevel" },
      before: { logLevel: { value: "DEBUG", source: "override" } },
      after: { logLevel: { value: "ERROR", source: "environment" } },
      outcome: "success",
    });
  });

  test("nothing changes if the intent can't be recorded in the audit log", async () => {
    const { settings, audit } = createInstance({});
    audit.append = () => Promise.reject(new Error("no audit"));
    await expect(settings.update("logging", { logLevel: "DEBUG" }, admin)).rejects.toThrow("no audit");
    expect((await createInstance({}).settings.values()).logLevel).toBe("INFO");
  });

  test("listeners are called with the changed settings after the change is stored", async () => {
    const { settings } = createInstance({});
    const notifications: unknown[] = [];
    settings.onChange(async (keys) => {
      notifications.push([keys, (await settings.values()).criticalExpiryDays]);
    });
    await settings.update("compliance-policy", { criticalExpiryDays: 14, warningExpiryDays: 30 }, admin);
    await settings.update("compliance-policy", { criticalExpiryDays: 14 }, admin);
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    expect(notifications).toEqual([
      [["criticalExpiryDays", "warningExpiryDays"], 14],
      [["criticalExpiryDays"], 7],
    ]);
  });

  test("a listener that failed is called again when the change is repeated or by the timer", async () => {
    const { settings, audit } = createInstance({});
    const notifications: string[][] = [];
    // The listener fails after the first change and in the first call of the timer (`notify`).
    let failures = 2;
    settings.onChange(async (keys) => {
      if (failures-- > 0) throw new Error("The queue is unreachable.");
      notifications.push(keys);
    });
    const changeThreshold = () => settings.update("compliance-policy", { criticalExpiryDays: 14 }, admin);
    await changeThreshold();
    expect([(await settings.values()).criticalExpiryDays, audit.events.at(-1)?.outcome]).toEqual([14, "success"]);
    await expect(settings.notify()).rejects.toThrow("unreachable");
    await changeThreshold();
    expect(notifications).toEqual([["criticalExpiryDays"]]);
    failures = 1;
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    const laterSettings = createInstance({}).settings;
    laterSettings.onChange(async (keys) => {
      notifications.push(["later", ...keys]);
    });
    await laterSettings.notify();
    await laterSettings.notify();
    expect(notifications).toEqual([["criticalExpiryDays"], ["later", "criticalExpiryDays"]]);
  });

  test("a change that is made while listeners are called is notified too", async () => {
    const { settings } = createInstance({});
    const otherSettings = createInstance({}).settings;
    otherSettings.onChange(() => Promise.reject(new Error("down")));
    const notifications: string[][] = [];
    settings.onChange(async (keys) => {
      if (notifications.push(keys) === 1) await otherSettings.update("logging", { logLevel: "DEBUG" }, admin);
    });
    await settings.update("features", { enableComplianceScanning: false }, admin);
    await settings.notify();
    expect(notifications).toEqual([["enableComplianceScanning"], ["enableComplianceScanning", "logLevel"]]);
  });
});

describe("reading", () => {
  test("values are read with one table request and cached for 20 seconds", async () => {
    const { settings, clock } = createInstance({});
    await Promise.all(Array.from({ length: 10 }, () => settings.values()));
    clock.advance(19 * SECOND_MS);
    await settings.values();
    expect(proxy.requests).toHaveLength(1);
    clock.advance(SECOND_MS);
    await settings.values();
    expect(proxy.requests).toHaveLength(2);
  });

  test("another instance applies a change within 30 seconds", async () => {
    const clock = stillClock();
    const [first, second] = [createInstance({ clock }), createInstance({ clock })];
    await second.settings.values();
    await first.settings.update("logging", { logLevel: "DEBUG" }, admin);
    expect(first.settings.current()?.logLevel).toBe("DEBUG");
    clock.advance(29 * SECOND_MS);
    expect((await second.settings.values()).logLevel).toBe("DEBUG");
    expect(second.settings.current()?.logLevel).toBe("DEBUG");
  });

  test("a read that started before a change and ends after it does not restore the old values", async () => {
    // Order: the change records its intent; another read gets the old row and waits; the change is stored; the read continues.
    let release = () => {};
    let hasRead = () => {};
    let released: Promise<void> | undefined;
    const slowTables: Tables = {
      ...tables,
      get: async (...args) => {
        const row = await tables.get(...args);
        hasRead();
        await released;
        return row;
      },
    };
    const { settings, audit } = createInstance({ tables: slowTables });
    let earlyRead: Promise<unknown> | undefined;
    audit.append = async ({ outcome }) => {
      if (outcome !== "intent") return;
      released = new Promise((resolve) => {
        release = resolve;
      });
      const reading = new Promise<void>((resolve) => {
        hasRead = resolve;
      });
      earlyRead = settings.describe("logging");
      await reading;
    };
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    release();
    await earlyRead;
    expect(settings.current()?.logLevel).toBe("DEBUG");
    expect((await settings.values()).logLevel).toBe("DEBUG");
  });

  test("the last values of App Configuration are used while it can't be reached", async () => {
    let read: AppConfiguration["read"] = () => Promise.reject(unreachableFailure());
    const { settings, log, clock } = createInstance({
      environment: { DISCOVERY_MAX_WORKERS: "5" },
      appConfiguration: { read: () => read() },
    });
    expect((await settings.values()).discoveryMaxWorkers).toBe(5);
    // A guarded request must not run with an unknown value of requireStepUp.
    expect(await settings.freshOrLastKnown()).toBeUndefined();
    expect(log.lines[0]).toContain("App Configuration could not be read");
    read = async () => new Map([["discoveryMaxWorkers", "77"]]);
    clock.advance(20 * SECOND_MS);
    expect((await settings.values()).discoveryMaxWorkers).toBe(77);
    expect(await settings.fresh()).toMatchObject({ discoveryMaxWorkers: 77 });
    read = () => Promise.reject(unreachableFailure());
    clock.advance(20 * SECOND_MS);
    expect((await settings.values()).discoveryMaxWorkers).toBe(77);
    // `fresh` returns no cached values.
    expect(await settings.fresh()).toBeUndefined();
    expect(await settings.freshOrLastKnown()).toMatchObject({ discoveryMaxWorkers: 77, requireStepUp: false });
  });

  // Each case: title, environment, App Configuration, effective values, and source of the ignored value by setting. A conflict
  // is a critical threshold that is not below the warning threshold.
  test.each<[string, Record<string, string>, Record<string, string>, Record<string, number>, object]>([
    [
      "the value of lower precedence is ignored",
      { WARNING_EXPIRY_DAYS: "15" },
      { criticalExpiryDays: "20" },
      { criticalExpiryDays: 20, warningExpiryDays: 30 },
      { warningExpiryDays: "environment" },
    ],
    [
      "the value of higher precedence is ignored if the default of the other setting conflicts with it too",
      { WARNING_EXPIRY_DAYS: "35" },
      { criticalExpiryDays: "40" },
      { criticalExpiryDays: 7, warningExpiryDays: 35 },
      { criticalExpiryDays: "appConfiguration" },
    ],
    [
      "only one value is ignored if both come from the same source",
      {},
      { criticalExpiryDays: "50", warningExpiryDays: "40" },
      { criticalExpiryDays: 7, warningExpiryDays: 40 },
      { criticalExpiryDays: "appConfiguration" },
    ],
    [
      "the value of the highest precedence remains if either of two values could be ignored",
      { CRITICAL_EXPIRY_DAYS: "20", WARNING_EXPIRY_DAYS: "25" },
      { warningExpiryDays: "15" },
      { criticalExpiryDays: 7, warningExpiryDays: 15 },
      { criticalExpiryDays: "environment" },
    ],
  ])("if sources conflict, %s", async (_description, environment, inAppConfiguration, values, ignored) => {
    const { settings } = createInstance({ environment, appConfiguration: appConfigurationWith(inAppConfiguration) });
    expect(await settings.values()).toMatchObject(values);
    const describedSettings = (await settings.describe("compliance-policy")).settings;
    const ignoredSources = describedSettings.flatMap((setting) =>
      setting.ignored.map(({ source }) => [setting.key, source]),
    );
    expect(Object.fromEntries(ignoredSources)).toEqual(ignored);
  });

  test("all settings are described by category", async () => {
    const { settings } = await createInstance({}).settings.describeAll();
    expect(Object.keys(settings)).toEqual(CATEGORY_NAMES);
    for (const category of CATEGORY_NAMES as Category[]) {
      expect(settings[category].map((setting) => setting.key)).toEqual(keysOf(category));
    }
    expect(settings.performance[0]).toEqual({
      key: "discoveryMaxWorkers",
      value: 10,
      source: "default",
      default: 10,
      environmentVariable: "DISCOVERY_MAX_WORKERS",
      type: "integer",
      minimum: 1,
      maximum: 200,
      allowed: null,
      description: expect.any(String),
      updatedAt: null,
      updatedBy: null,
      ignored: [],
    });
    expect(settings.logging[0]).toMatchObject({
      type: "string",
      allowed: ["DEBUG", "INFO", "WARNING", "ERROR"],
      minimum: null,
    });
  });
});
