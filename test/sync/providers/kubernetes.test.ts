import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { KubernetesSettings } from "../../../shared/sync/providers/kubernetes/configuration.ts";
import { kubernetes } from "../../../shared/sync/providers/kubernetes/provider.ts";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { FAULTS, failureOf, markOf, providersCloud } from "./simulated-provider.ts";
import { providerSuite } from "./suite.ts";

// Runs the tests of sync providers (suite.ts) for Kubernetes secrets.

const settingsIn = (cloud: Cloud): KubernetesSettings => {
  const { token: _, ...settings } = cloud.control.providers.configurations().kubernetes!;
  return settings as unknown as KubernetesSettings;
};

providerSuite("kubernetes secret", async () => {
  const { cloud, deps } = await providersCloud();
  const { control } = cloud;
  const cluster = control.providers.kubernetes;
  const partsOf = (name: string) => name.split("/") as [string, string];
  let names = 0;
  // The members are explained in suite.ts, which has the tests.
  return {
    provider: providerOf("kubernetes")!,
    service: "secret",
    region: undefined,
    settings: { ...settingsIn(cloud) },
    secrets: { token: cluster.token },
    wrongSecrets: { token: "wrong" },
    deps,
    unusedName: () => `copy-${names++}/password`,
    invalidNames: ["", "/value", "A", "a/b/c", "a/", "a/b c", "-a", "a..b", "x".repeat(254)],
    recovers: false,
    conditional: true,
    guarded: true,
    value: (name) => cluster.value(...partsOf(name)),
    writeByOthers: (name, value) => cluster.write(partsOf(name)[0], value, partsOf(name)[1]),
    deleteByOthers: (name) => cluster.remove(partsOf(name)[0]),
    addTrouble(kind, times) {
      const operations = kind === "lostAfterWrite" ? ["createSecret", "applySecret"] : ["*"];
      for (const operation of operations) {
        const match = { operation: `kubernetes.${operation}` };
        control.addFault({ match, action: FAULTS[kind], ...(times && { times }) });
      }
    },
    removeFaults: () => control.clearFaults(),
    counts: () => ({ writes: cluster.written(), valueReads: control.counts()["kubernetes.getSecret"] ?? 0 }),
    stop: () => cloud.stop(),
  };
});

describe("kubernetes secret", () => {
  let cloud: Cloud;
  let deps: TargetDependencies;
  let names = 0;
  let name = "";
  beforeAll(async () => {
    ({ cloud, deps } = await providersCloud());
  });
  beforeEach(() => {
    name = `db-${++names}`;
    cloud.control.clearFaults();
    cloud.control.resetCounts();
  });
  afterAll(() => cloud?.stop());

  const cluster = () => cloud.control.providers.kubernetes;
  const open = (change: Partial<KubernetesSettings> = {}) => {
    const settings = { ...settingsIn(cloud), ...change };
    return kubernetes.open({ service: "secret", region: undefined }, settings, { token: cluster().token }, deps);
  };

  test("is recognized as the record's own if another writer wrote the next value before", async () => {
    const target = open();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    cluster().write(name, "two");
    await target.put(name, "two", markOf("v2"), await target.describe(name));
    expect((await target.describe(name)).currentMarkId).toBe(markId(markOf("v2")));
  });

  test("keeps the keys of other writers", async () => {
    cluster().write(name, "theirs", "user");
    const target = open();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect([cluster().value(name), cluster().value(name, "user")]).toEqual(["one", "theirs"]);
    cluster().write(name, "theirs too", "user");
    expect((await target.describe(name)).currentMarkId).toBe(markId(markOf("v1")));
  });

  test("that is immutable can't be written", async () => {
    const target = open();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    cluster().freeze(name);
    const failure = await failureOf(target.put(name, "two", markOf("v2"), await target.describe(name)));
    expect(failure).toMatchObject({ code: "targetRefused", providerCode: "Invalid" });
  });

  test("is not read from a server with an untrusted certificate", async () => {
    const { caCertificate: _, ...settings } = settingsIn(cloud);
    const { token } = cluster();
    const target = kubernetes.open({ service: "secret", region: undefined }, settings, { token }, deps);
    expect(await failureOf(target.describe(name))).toMatchObject({ code: "unreachable" });
    expect(cloud.control.counts()).toEqual({ total: 0 });
  });

  test("of another namespace fails with a missing permission that names the verb", async () => {
    const failure = await failureOf(open({ namespace: "kube-system" }).describe(name));
    expect(failure).toMatchObject({ code: "accessDenied", remedy: expect.stringContaining("verb get") });
  });

  test("is the same target for every key, because a record owns the whole Secret", () => {
    const { comparableName } = kubernetes.services.secret!;
    expect([comparableName!("db/value"), comparableName!("db/user")]).toEqual([
      comparableName!("db"),
      comparableName!("db"),
    ]);
    expect(comparableName!("db")).not.toBe(comparableName!("db-2"));
  });
});
