import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { hashicorp } from "../../../shared/sync/providers/hashicorp/provider.ts";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { FAULTS, failureOf, markOf, providersCloud } from "./simulated-provider.ts";
import { providerSuite } from "./suite.ts";

// Tests of HashiCorp Vault as a sync target: the tests of all providers (suite.ts), and behavior of HashiCorp Vault alone. A mark,
// stored in the metadata, names the record and the source version that the value comes from.

const settingsIn = (cloud: Cloud) => {
  const { address } = cloud.control.providers.configurations().hashicorp!;
  return { address: address! };
};

providerSuite("hashicorp kv", async () => {
  const { cloud, deps } = await providersCloud();
  const { control } = cloud;
  const vault = control.providers.hashicorp;
  let names = 0;
  // The members are explained in suite.ts, which has the tests.
  return {
    provider: providerOf("hashicorp")!,
    service: "kv",
    region: undefined,
    settings: settingsIn(cloud),
    secrets: { token: vault.credentials.token },
    wrongSecrets: { token: "hvs.wrong" },
    deps,
    unusedName: () => `team/copy-${names++}`,
    invalidNames: ["", "/a", "a/", "a//b", "a/../b", "a?b", "ä"],
    recovers: true,
    conditional: true,
    guarded: true,
    value: (name) => vault.data(name)?.value as string | undefined,
    writeByOthers: (name, value) => vault.write(name, { value }),
    deleteByOthers: (name) => vault.remove(name),
    addTrouble(kind, times) {
      if (kind === "badCredentials") {
        control.addFault({ match: { operation: "hashicorp.*" }, action: { kind: "fail", status: 403 } });
      } else {
        const operation = kind === "lostAfterWrite" ? "hashicorp.kv.writeData" : "hashicorp.kv.*";
        control.addFault({ match: { operation }, action: FAULTS[kind], ...(times && { times }) });
      }
    },
    removeFaults: () => control.clearFaults(),
    counts: () => ({ writes: vault.written(), valueReads: control.counts()["hashicorp.kv.readData"] ?? 0 }),
    stop: () => cloud.stop(),
  };
});

describe("hashicorp kv", () => {
  let cloud: Cloud;
  let deps: TargetDependencies;
  let names = 0;
  let name = "";
  beforeAll(async () => {
    ({ cloud, deps } = await providersCloud());
  });
  beforeEach(() => {
    name = `team/db-${++names}`;
    cloud.control.clearFaults();
    cloud.control.resetCounts();
  });
  afterAll(() => cloud?.stop());

  const vault = () => cloud.control.providers.hashicorp;
  const token = () => ({ token: vault().credentials.token });
  const open = (secrets: { token?: string; secretId?: string } = token(), change = {}) =>
    hashicorp.open({ service: "kv", region: undefined }, { ...settingsIn(cloud), ...change }, secrets, deps);
  const byRole = () => open({ secretId: vault().credentials.secretId }, { roleId: vault().credentials.roleId });

  test.each([
    ["before the value", "hashicorp.kv.writeData", { kind: "reset" }],
    ["after the value", "hashicorp.kv.writeData", { kind: "loseAnswer" }],
    ["before the last metadata", "hashicorp.kv.writeMetadata", { kind: "reset" }],
  ] as const)("has one version if a write fails %s and is repeated", async (_, operation, action) => {
    const target = open();
    // The first write of the metadata announces the value. The second one confirms it.
    const after = operation.endsWith("Metadata") ? 1 : 0;
    cloud.control.addFault({ match: { operation }, action, times: 1, after });
    await failureOf(target.put(name, "one", markOf("v1"), await target.describe(name)));
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect(await target.describe(name)).toMatchObject({ version: "1", currentMarkId: markId(markOf("v1")) });
  });

  test("is not recognized as its own if another writer wrote after a failed write", async () => {
    const target = open();
    cloud.control.addFault({ match: { operation: "hashicorp.kv.writeData" }, action: { kind: "reset" }, times: 1 });
    await failureOf(target.put(name, "one", markOf("v1"), await target.describe(name)));
    vault().write(name, { value: "theirs" });
    expect((await target.describe(name)).currentMarkId).toBeUndefined();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect([vault().data(name), (await target.describe(name)).version]).toEqual([{ value: "one" }, "2"]);
  });

  test("is not overwritten if another writer writes at the same moment", async () => {
    const outgoing = {
      send: async (address: string, request: Parameters<typeof deps.outgoing.send>[1]) => {
        if (request.method === "POST" && address.includes("/data/")) vault().write(name, { value: "theirs" });
        return await deps.outgoing.send(address, request);
      },
    };
    const target = hashicorp.open({ service: "kv", region: undefined }, settingsIn(cloud), token(), {
      ...deps,
      outgoing,
    });
    const failure = await failureOf(target.put(name, "one", markOf("v1"), await target.describe(name)));
    expect(failure).toMatchObject({ code: "changedMeanwhile" });
    expect(vault().data(name)).toEqual({ value: "theirs" });
    expect((await open().describe(name)).currentMarkId).toBeUndefined();
  });

  test("keeps the metadata of others", async () => {
    vault().write(name, { value: "theirs" });
    vault().addMetadata(name, { team: "payments" });
    const target = open();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect(vault().metadata(name)).toMatchObject({ team: "payments", "sync-source": "kv-payments/db-password" });
  });

  test("signs in with a role once until the token is revoked", async () => {
    await Promise.all([byRole().describe(name), byRole().describe(name)]);
    await byRole().put(name, "one", markOf("v1"), { exists: false });
    expect(cloud.control.counts()["hashicorp.auth.login"]).toBe(1);
    vault().revokeIssued();
    expect(await byRole().describe(name)).toMatchObject({ exists: true });
    expect(cloud.control.counts()["hashicorp.auth.login"]).toBe(2);
  });

  test("reports wrong credentials if a role is rejected", async () => {
    const target = open({ secretId: "wrong" }, { roleId: vault().credentials.roleId });
    expect(await failureOf(target.describe(name))).toMatchObject({ code: "badCredentials" });
  });

  test("reports a missing permission if the token may not read its own properties", async () => {
    cloud.control.addFault({ match: { operation: "hashicorp.*" }, action: { kind: "deny" } });
    expect(await failureOf(open().describe(name))).toMatchObject({ code: "accessDenied" });
  });

  test("reports that the vault is sealed", async () => {
    vault().sealed = true;
    try {
      const failure = await failureOf(open().describe(name));
      expect(failure).toMatchObject({ code: "unreachable", remedy: expect.stringContaining("unsealed") });
    } finally {
      vault().sealed = false;
    }
  });

  // `old-kv` is a mount of version 1. `nothing` does not exist, which Vault answers like a missing permission.
  test.each(["old-kv", "nothing"])("is not configured with the mount %s", async (mount) => {
    const failure = await failureOf(hashicorp.check({ ...settingsIn(cloud), mount }, token(), deps));
    expect(failure).toMatchObject({ code: mount === "old-kv" ? "notFound" : "accessDenied" });
  });

  test("does not call a private address that the environment does not allow", async () => {
    const target = open(token(), { address: cloud.environment.AZURE_AUTHORITY_HOST });
    const failure = await failureOf(target.describe(name));
    expect(failure).toMatchObject({ code: "unreachable", message: expect.stringContaining("blocked") });
    expect(cloud.control.counts()).toEqual({ total: 0 });
  });

  test.each([
    ["http", { address: "http://vault.example.com", token: "t" }],
    ["a user in the address", { address: "https://me@vault.example.com", token: "t" }],
    ["a query", { address: "https://vault.example.com?x=1", token: "t" }],
    ["no credential", { address: "https://vault.example.com" }],
    ["two credentials", { address: "https://vault.example.com", token: "t", roleId: "r", secretId: "s" }],
    ["a role alone", { address: "https://vault.example.com", roleId: "r" }],
    ["a mount with a path to elsewhere", { address: "https://vault.example.com", token: "t", mount: "../sys" }],
    ["a line break in the token", { address: "https://vault.example.com", token: "t\nx-evil: 1" }],
    ["an invalid certificate", { address: "https://vault.example.com", token: "t", caCertificate: "x" }],
  ])("can't be configured with %s", (_, configuration) => {
    expect(hashicorp.configuration.safeParse(configuration).success).toBe(false);
  });
});
