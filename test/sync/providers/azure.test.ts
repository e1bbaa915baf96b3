import type { FaultAction } from "simulated-cloud/faults.ts";
import { expect, test } from "vitest";
import { createIdentity } from "../../../shared/platform/azure/identity.ts";
import {
  createVaultSecrets,
  type SecretVersion,
  type VaultSecrets,
} from "../../../shared/platform/azure/vault-secrets.ts";
import { systemClock } from "../../../shared/platform/runtime.ts";
import { azureTarget } from "../../../shared/sync/providers/azure/target.ts";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import { providerDependencies } from "../../../shared/sync/providers/provider-dependencies.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { liveIn } from "../../azure/live-cloud.ts";
import { IMPATIENT, recordingLog } from "../../azure/services.ts";
import { providerSuite, type Trouble } from "./suite.ts";

const VAULT = "kv-copies";

const FAULTS: Record<Trouble, FaultAction> = {
  throttled: { kind: "throttle", retryAfterSeconds: 120 },
  badCredentials: { kind: "fail", status: 401 },
  denied: { kind: "deny" },
  html: { kind: "garbage", as: "html" },
  lostBefore: { kind: "reset" },
  switched: { kind: "switchProtocols" },
  lostAfterWrite: { kind: "loseAnswer" },
};

providerSuite("azure", async () => {
  const { cloud, config } = await liveIn({
    company: { subscriptions: [{ name: "Shop", vaults: [{ name: VAULT }] }] },
  });
  const { port } = new URL(config.SERVICE_KEY_VAULT_URL!);
  const vaultUri = `https://${VAULT}.${config.cloud.keyVaultSuffix}:${port}`;
  const identity = createIdentity(config);
  const vault = createVaultSecrets({ config, identity, log: recordingLog(), limits: IMPATIENT }).open({
    name: VAULT,
    vaultUri,
  });
  let names = 0;
  const { control } = cloud;
  return {
    provider: providerOf("azure")!,
    service: "keyvault",
    region: VAULT,
    settings: {},
    secrets: {},
    deps: { ...providerDependencies(config, systemClock), vaultSecrets: async () => vault },
    freshName: () => `copy-${names++}`,
    badNames: ["", "a/b", "a_b", "x".repeat(128), "ä"],
    recovers: true,
    conditional: true,
    guarded: false,
    value: (name) => control.secretValue(VAULT, name),
    writeByOthers: (name, value) => control.putSecret(VAULT, { name, value }),
    deleteByOthers: (name) => vault.remove(name),
    trouble: (kind, times) => {
      const operation = kind === "lostAfterWrite" ? "keyvault.setSecret" : "keyvault.*";
      control.addFault({ match: { operation, vault: VAULT }, action: FAULTS[kind], ...(times && { times }) });
    },
    heal: () => control.clearFaults(),
    counts: () => {
      const { "keyvault.setSecret": writes = 0, "keyvault.getSecret": valueReads = 0 } = control.counts();
      return { writes, valueReads };
    },
    stop: () => cloud.stop(),
  };
});

test("among versions of one second it knows its own by those that it was written over, as many as a tag can name", async () => {
  const mark = { recordId: "01K00000000000000000000000", sourceVersion: "1", source: "kv-shop/password" };
  const signal = AbortSignal.timeout(5000);
  const knowsItsOwn = async (others: number) => {
    const versions = Array.from({ length: others }, (_, at): SecretVersion => {
      const version = String(at).padStart(8, "0").repeat(4);
      return { name: "copy", version, enabled: true, tags: {}, createdOn: 1_800_000_000, managed: false };
    });
    const vault: Pick<VaultSecrets, "versions" | "write"> = {
      versions: async () => versions,
      async write(_name, { tags = {} }) {
        expect(Math.max(...Object.values(tags).map((value) => value.length))).toBeLessThanOrEqual(256);
        const made = { ...versions[0]!, version: "f".repeat(32), tags };
        versions.push(made);
        return made;
      },
    };
    const target = azureTarget(async () => vault as VaultSecrets);
    await target.put("copy", "value", mark, await target.describe("copy", signal), signal);
    return (await target.describe("copy", signal)).holds === markId(mark);
  };
  expect([await knowsItsOwn(28), await knowsItsOwn(29)]).toEqual([true, false]);
});
