import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AppConfiguration } from "../../shared/platform/azure/app-configuration.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
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

/** One instance of the service. Instances share the table and the given clock. */
function instance(given: {
  environment?: Record<string, string>;
  appConfiguration?: AppConfiguration;
  clock?: ReturnType<typeof stillClock>;
  tables?: Tables;
}) {
  const audit = recordingAudit();
  const log = recordingLog();
  const clock = given.clock ?? stillClock();
  const { appConfiguration } = given;
  const config = configWith(given.environment);
  return {
    audit,
    log,
    clock,
    settings: createSettings({ tables: given.tables ?? tables, config, clock, audit, log, appConfiguration }),
  };
}

const store = (values: Record<string, string>): AppConfiguration => ({
  read: async () => new Map(Object.entries(values)),
});

const unreachable = () =>
  new CloudFailure("unreachable", "Could not read settings.", { remedy: "Look at its network." });

async function described(settings: ReturnType<typeof createSettings>, key: SettingKey): Promise<SettingDescription> {
  return (await settings.describe(DEFINITIONS[key].category)).settings.find((one) => one.key === key)!;
}

/** Three values of each setting besides its default, all different if possible. */
const SAMPLES: Record<SettingKey, [string, string, string | number | boolean]> = {
  discoveryMaxWorkers: ["2", "3", 4],
  discoveryScanTimeout: ["60", "61", 86_400],
  enableNotifications: ["false", "true", false],
  enableComplianceScanning: ["false", "true", false],
  watchAll: ["false", "true", false],
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
    "%s comes from default, environment, App Configuration or override, the later has precedence",
    async (key) => {
      const [inEnvironment, inAppConfiguration, override] = SAMPLES[key];
      const { category, environmentVariable, default: standard } = DEFINITIONS[key];
      const environment = { [environmentVariable]: inEnvironment };
      const appConfiguration = store({ [key]: inAppConfiguration });

      expect(await described(instance({}).settings, key)).toMatchObject({ value: standard, source: "default" });
      const second = await described(instance({ environment }).settings, key);
      expect([String(second.value), second.source]).toEqual([inEnvironment, "environment"]);
      const all = instance({ environment, appConfiguration });
      const third = await described(all.settings, key);
      expect([String(third.value), third.source]).toEqual([inAppConfiguration, "appConfiguration"]);

      await all.settings.update(category, { [key]: override }, admin);
      expect(await described(all.settings, key)).toMatchObject({
        value: override,
        source: "override",
        updatedAt: "2026-11-21T10:00:00.000Z",
        updatedBy: "ada",
      });
      expect((await all.settings.values())[key]).toBe(override);

      await all.settings.remove(category, key, admin);
      expect(await described(all.settings, key)).toMatchObject({
        source: "appConfiguration",
        updatedAt: null,
        updatedBy: null,
      });
    },
  );

  test("an invalid value of App Configuration is ignored, shown and logged once, and never repeated", async () => {
    const { settings, log, clock } = instance({
      environment: { DISCOVERY_MAX_WORKERS: "5" },
      appConfiguration: store({ discoveryMaxWorkers: "pa55word", enableNotifications: "TRUE", logLevel: "info" }),
    });
    const reason = "must be a whole number from 1 to 200";
    expect(await described(settings, "discoveryMaxWorkers")).toMatchObject({
      value: 5,
      source: "environment",
      ignored: [{ source: "appConfiguration", reason }],
    });
    clock.forward(60_000);
    await settings.values();
    expect(log.lines.filter((line) => line.includes(reason))).toHaveLength(1);
    expect(log.lines).toHaveLength(3);
    expect(log.lines.join()).not.toContain("pa55word");
  });

  test("a stored override that is no longer valid is ignored and shown", async () => {
    const old = { updatedAt: "2025-01-01T00:00:00.000Z", updatedBy: "bo" };
    await tables.put(SettingsRow, SETTINGS_PARTITION, OVERRIDES, {
      overrides: {
        discoveryMaxWorkers: { value: 9999, ...old },
        logLevel: { value: "TRACE", ...old },
        gone: { value: 1, ...old },
      },
    });
    const { settings } = instance({});
    expect(await settings.values()).toMatchObject({ discoveryMaxWorkers: 10, logLevel: "INFO" });
    expect((await described(settings, "logLevel")).ignored).toEqual([
      { source: "override", reason: "must be one of DEBUG, INFO, WARNING, ERROR" },
    ]);
    expect(await settings.removeAll(admin)).toEqual(["discoveryMaxWorkers", "logLevel"]);
    expect((await tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES))?.overrides).toEqual({});
  });
});

describe("changing", () => {
  test.each(SETTING_KEYS)("%s accepts its limits and nothing beyond them", async (key) => {
    const { settings, audit } = instance({});
    const definition = DEFINITIONS[key];
    const [good, bad]: [unknown[], unknown[]] =
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
    for (const value of bad) {
      const problem = await problemOf(settings.update(definition.category, { [key]: value }, admin));
      expect(problem.code).toBe("invalidRequest");
      expect(problem.errors?.[0]?.path).toBe(`body.${key}`);
    }
    expect(audit.events).toEqual([]);
    // The thresholds limit each other, so the other one is set to a value that does not matter.
    const beside =
      key === "criticalExpiryDays"
        ? { warningExpiryDays: 730 }
        : key === "warningExpiryDays"
          ? { criticalExpiryDays: 0 }
          : {};
    for (const value of good) await settings.update(definition.category, { [key]: value, ...beside }, admin);
    expect((await settings.values())[key]).toBe(good.at(-1));
  });

  test("a request is applied completely or not at all", async () => {
    const { settings, audit } = instance({});
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, discoveryScanTimeout: 1 }, admin));
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, logLevel: "DEBUG" }, admin));
    await problemOf(settings.update("performance", { discoveryMaxWorkers: 20, nonsense: 1 }, admin));
    expect((await settings.values()).discoveryMaxWorkers).toBe(10);
    expect(audit.events).toEqual([]);
  });

  test("criticalExpiryDays stays below warningExpiryDays, whichever of them a request sets or removes", async () => {
    const { settings } = instance({});
    const set = (changes: object) => settings.update("compliance-policy", { ...changes }, admin);
    for (const changes of [
      { criticalExpiryDays: 30 },
      { warningExpiryDays: 7 },
      { criticalExpiryDays: 40, warningExpiryDays: 40 },
    ]) {
      const problem = await problemOf(set(changes));
      expect([problem.code, problem.errors?.[0]?.path]).toEqual(["invalidRequest", `body.${Object.keys(changes)[0]}`]);
    }
    await set({ criticalExpiryDays: 40, warningExpiryDays: 60 });
    const problem = await problemOf(settings.remove("compliance-policy", "warningExpiryDays", admin));
    expect(problem.code).toBe("conflict");
    expect(await settings.values()).toMatchObject({ criticalExpiryDays: 40, warningExpiryDays: 60 });
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    await settings.remove("compliance-policy", "warningExpiryDays", admin);
    expect(await settings.values()).toMatchObject({ criticalExpiryDays: 7, warningExpiryDays: 30 });
  });

  test("two instances that each change one threshold at the same time never leave a conflict", async () => {
    const [a, b] = [instance({}), instance({})];
    await a.settings.values();
    await b.settings.values();
    const results = await Promise.allSettled([
      a.settings.update("compliance-policy", { criticalExpiryDays: 25 }, admin),
      b.settings.update("compliance-policy", { warningExpiryDays: 20 }, admin),
    ]);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const { criticalExpiryDays, warningExpiryDays } = await instance({}).settings.values();
    expect(criticalExpiryDays).toBeLessThan(warningExpiryDays);
  });

  test("concurrent changes of two instances are both stored", async () => {
    const [a, b] = [instance({}), instance({})];
    await Promise.all([
      a.settings.update("performance", { discoveryMaxWorkers: 50 }, admin),
      b.settings.update("logging", { logLevel: "DEBUG" }, admin),
    ]);
    expect(await instance({}).settings.values()).toMatchObject({ discoveryMaxWorkers: 50, logLevel: "DEBUG" });
  });

  test("only an existing override can be removed, under its own category", async () => {
    const { settings } = instance({});
    expect((await problemOf(settings.remove("logging", "logLevel", admin))).code).toBe("notFound");
    expect((await problemOf(settings.remove("logging", "discoveryMaxWorkers", admin))).code).toBe("notFound");
    expect((await problemOf(settings.remove("logging", "__proto__", admin))).code).toBe("notFound");
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    expect(await settings.remove("logging", "logLevel", admin)).toMatchObject({ value: "INFO", source: "default" });
  });

  test("removing everything leaves no override", async () => {
    const { settings } = instance({});
    expect(await settings.removeAll(admin)).toEqual([]);
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    await settings.update("compliance-policy", { criticalExpiryDays: 50, warningExpiryDays: 60 }, admin);
    expect(await settings.removeAll(admin)).toEqual(["logLevel", "criticalExpiryDays", "warningExpiryDays"]);
    const { settings: all } = await settings.describeAll();
    const sources = Object.values(all).flatMap((category) => category.map((one) => one.source));
    expect(new Set(sources)).toEqual(new Set(["default"]));
  });

  test("a stale ETag is rejected; a change of another category does not make one stale", async () => {
    const { settings } = instance({});
    const { etag } = await settings.describe("performance");
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    const changed = await settings.update("performance", { discoveryMaxWorkers: 11 }, admin, etag);
    expect(changed.etag).not.toBe(etag);
    for (const stale of [
      settings.update("performance", { discoveryMaxWorkers: 12 }, admin, etag),
      settings.remove("performance", "discoveryMaxWorkers", admin, etag),
      settings.removeAll(admin, etag),
    ]) {
      expect((await problemOf(stale)).code).toBe("preconditionFailed");
    }
    await settings.update("performance", { discoveryMaxWorkers: 12 }, admin, "*");
    await settings.removeAll(admin, (await settings.describeAll()).etag);
    expect((await settings.values()).discoveryMaxWorkers).toBe(10);
  });

  test("a change is recorded with its old and new values, before and after it is made", async () => {
    const { settings, audit } = instance({ environment: { LOG_LEVEL: "ERROR" } });
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

  test("nothing changes if the change can't be recorded", async () => {
    const { settings, audit } = instance({});
    audit.append = () => Promise.reject(new Error("no audit"));
    await expect(settings.update("logging", { logLevel: "DEBUG" }, admin)).rejects.toThrow("no audit");
    expect((await instance({}).settings.values()).logLevel).toBe("INFO");
  });

  test("listeners get the changed settings, after each change is stored", async () => {
    const { settings } = instance({});
    const heard: unknown[] = [];
    settings.onChange(async (keys) => {
      heard.push([keys, (await settings.values()).criticalExpiryDays]);
    });
    await settings.update("compliance-policy", { criticalExpiryDays: 14, warningExpiryDays: 30 }, admin);
    await settings.update("compliance-policy", { criticalExpiryDays: 14 }, admin);
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    expect(heard).toEqual([
      [["criticalExpiryDays", "warningExpiryDays"], 14],
      [["criticalExpiryDays"], 7],
    ]);
  });

  test("a change whose listener fails stays, and its repeat or the timer calls the listener", async () => {
    const { settings, audit } = instance({});
    const heard: string[][] = [];
    let failures = 2;
    settings.onChange(async (keys) => {
      if (failures-- > 0) throw new Error("The queue is out of reach.");
      heard.push(keys);
    });
    const put = () => settings.update("compliance-policy", { criticalExpiryDays: 14 }, admin);
    await put();
    expect([(await settings.values()).criticalExpiryDays, audit.events.at(-1)?.outcome]).toEqual([14, "success"]);
    await expect(settings.notify()).rejects.toThrow("out of reach");
    await put();
    expect(heard).toEqual([["criticalExpiryDays"]]);
    failures = 1;
    await settings.remove("compliance-policy", "criticalExpiryDays", admin);
    const later = instance({}).settings;
    later.onChange(async (keys) => {
      heard.push(["later", ...keys]);
    });
    await later.notify();
    await later.notify();
    expect(heard).toEqual([["criticalExpiryDays"], ["later", "criticalExpiryDays"]]);
  });

  test("a change during a notification of another one is not lost", async () => {
    const { settings } = instance({});
    const other = instance({}).settings;
    other.onChange(() => Promise.reject(new Error("down")));
    const heard: string[][] = [];
    settings.onChange(async (keys) => {
      if (heard.push(keys) === 1) await other.update("logging", { logLevel: "DEBUG" }, admin);
    });
    await settings.update("features", { enableComplianceScanning: false }, admin);
    await settings.notify();
    expect(heard).toEqual([["enableComplianceScanning"], ["enableComplianceScanning", "logLevel"]]);
  });
});

describe("reading", () => {
  test("values cost one table request per load for all callers, and none for 20 seconds after it", async () => {
    const { settings, clock } = instance({});
    await Promise.all(Array.from({ length: 10 }, () => settings.values()));
    clock.forward(19_000);
    await settings.values();
    expect(proxy.requests).toHaveLength(1);
    clock.forward(1_000);
    await settings.values();
    expect(proxy.requests).toHaveLength(2);
  });

  test("another instance applies a change within 30 seconds, this one at once and without a restart", async () => {
    const clock = stillClock();
    const [a, b] = [instance({ clock }), instance({ clock })];
    await b.settings.values();
    await a.settings.update("logging", { logLevel: "DEBUG" }, admin);
    expect(a.settings.current()?.logLevel).toBe("DEBUG");
    clock.forward(29_000);
    expect((await b.settings.values()).logLevel).toBe("DEBUG");
    expect(b.settings.current()?.logLevel).toBe("DEBUG");
  });

  test("a load that read before a change and ends after it does not restore the old values", async () => {
    let release = () => {};
    let hasRead = () => {};
    let held: Promise<void> | undefined;
    const slow: Tables = {
      ...tables,
      get: async (...args) => {
        const row = await tables.get(...args);
        hasRead();
        await held;
        return row;
      },
    };
    const { settings, audit } = instance({ tables: slow });
    let early: Promise<unknown> | undefined;
    audit.append = async ({ outcome }) => {
      if (outcome !== "intent") return;
      held = new Promise((resolve) => {
        release = resolve;
      });
      const reading = new Promise<void>((resolve) => {
        hasRead = resolve;
      });
      early = settings.describe("logging");
      await reading;
    };
    await settings.update("logging", { logLevel: "DEBUG" }, admin);
    release();
    await early;
    expect(settings.current()?.logLevel).toBe("DEBUG");
    expect((await settings.values()).logLevel).toBe("DEBUG");
  });

  test("the last values of App Configuration stay in use while it can't be reached", async () => {
    let read: AppConfiguration["read"] = () => Promise.reject(unreachable());
    const { settings, log, clock } = instance({
      environment: { DISCOVERY_MAX_WORKERS: "5" },
      appConfiguration: { read: () => read() },
    });
    expect((await settings.values()).discoveryMaxWorkers).toBe(5);
    expect(log.lines[0]).toContain("App Configuration could not be read");
    read = async () => new Map([["discoveryMaxWorkers", "77"]]);
    clock.forward(20_000);
    expect((await settings.values()).discoveryMaxWorkers).toBe(77);
    expect(await settings.fresh()).toMatchObject({ discoveryMaxWorkers: 77 });
    read = () => Promise.reject(unreachable());
    clock.forward(20_000);
    expect((await settings.values()).discoveryMaxWorkers).toBe(77);
    // A caller that requests the present values does not get cached ones.
    expect(await settings.fresh()).toBeUndefined();
  });

  test.each<[string, Record<string, string>, Record<string, string>, Record<string, number>, object]>([
    [
      "the value of lower precedence gives way",
      { WARNING_EXPIRY_DAYS: "15" },
      { criticalExpiryDays: "20" },
      { criticalExpiryDays: 20, warningExpiryDays: 30 },
      { warningExpiryDays: "environment" },
    ],
    [
      "the value of higher precedence gives way where the other one's default does not fit either",
      { WARNING_EXPIRY_DAYS: "35" },
      { criticalExpiryDays: "40" },
      { criticalExpiryDays: 7, warningExpiryDays: 35 },
      { criticalExpiryDays: "appConfiguration" },
    ],
    [
      "as few values as possible give way where one source contradicts itself",
      {},
      { criticalExpiryDays: "50", warningExpiryDays: "40" },
      { criticalExpiryDays: 7, warningExpiryDays: 40 },
      { criticalExpiryDays: "appConfiguration" },
    ],
    [
      "of two pairs that leave out as many the one with the value of the highest precedence stays",
      { CRITICAL_EXPIRY_DAYS: "20", WARNING_EXPIRY_DAYS: "25" },
      { warningExpiryDays: "15" },
      { criticalExpiryDays: 7, warningExpiryDays: 15 },
      { criticalExpiryDays: "environment" },
    ],
  ])("if sources conflict, %s", async (_, environment, inStore, values, ignored) => {
    const { settings } = instance({ environment, appConfiguration: store(inStore) });
    expect(await settings.values()).toMatchObject(values);
    const shown = (await settings.describe("compliance-policy")).settings;
    const left = shown.flatMap((one) => one.ignored.map(({ source }) => [one.key, source]));
    expect(Object.fromEntries(left)).toEqual(ignored);
  });

  test("every category shows its settings in full", async () => {
    const { settings } = await instance({}).settings.describeAll();
    expect(Object.keys(settings)).toEqual(CATEGORY_NAMES);
    for (const category of CATEGORY_NAMES as Category[]) {
      expect(settings[category].map((one) => one.key)).toEqual(keysOf(category));
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
