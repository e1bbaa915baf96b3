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
import { startTestCloud } from "../../azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../../azure/services.ts";
import { providerSuite, type Trouble } from "./suite.ts";

// Runs the tests of sync providers (suite.ts) for copies in another Key Vault.

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
  const { cloud, config } = await startTestCloud({
    company: { subscriptions: [{ name: "Shop", vaults: [{ name: VAULT }] }] },
  });
  const { port } = new URL(config.SERVICE_KEY_VAULT_URL!);
  const vaultUri = `https://${VAULT}.${config.cloud.keyVaultSuffix}:${port}`;
  const identity = createIdentity(config);
  const vault = createVaultSecrets({ config, identity, log: recordingLog(), limits: SHORT_WAITS }).open({
    name: VAULT,
    vaultUri,
  });
  let names = 0;
  const { control } = cloud;
  // The members are explained in suite.ts, which has the tests.
  return {
    provider: providerOf("azure")!,
    service: "keyvault",
    region: VAULT,
    settings: {},
    secrets: {},
    deps: { ...providerDependencies(config, systemClock), vaultSecrets: async () => vault },
    unusedName: () => `copy-${names++}`,
    invalidNames: ["", "a/b", "a_b", "x".repeat(128), "ä"],
    recovers: true,
    conditional: true,
    guarded: false,
    value: (name) => control.secretValue(VAULT, name),
    writeByOthers: (name, value) => control.putSecret(VAULT, { name, value }),
    deleteByOthers: (name) => vault.remove(name),
    addTrouble: (kind, times) => {
      const operation = kind === "lostAfterWrite" ? "keyvault.setSecret" : "keyvault.*";
      control.addFault({ match: { operation, vault: VAULT }, action: FAULTS[kind], ...(times && { times }) });
    },
    removeFaults: () => control.clearFaults(),
    counts: () => {
      const { "keyvault.setSecret": writes = 0, "keyvault.getSecret": valueReads = 0 } = control.counts();
      return { writes, valueReads };
    },
    stop: () => cloud.stop(),
  };
});

// Versions of a secret are ordered by their creation time in whole seconds. If several are of the same second, the service
// recognizes its own version as the newest because the version's tags name the others. The tags have room for 28 of them.
test("the version that the service wrote is recognized as the newest among up to 28 versions of the same second", async () => {
  const mark = { recordId: "01K00000000000000000000000", sourceVersion: "1", source: "kv-shop/password" };
  const signal = AbortSignal.timeout(5000);
  const recognizesOwnVersion = async (others: number) => {
    const versions = Array.from({ length: others }, (_, index): SecretVersion => {
      const version = String(index).padStart(8, "0").repeat(4);
      return { name: "copy", version, enabled: true, tags: {}, createdOn: 1_800_000_000, managed: false };
    });
    const vault: Pick<VaultSecrets, "versions" | "write"> = {
      versions: async () => versions,
      async write(_name, { tags = {} }) {
        expect(Math.max(...Object.values(tags).map((value) => value.length))).toBeLessThanOrEqual(256);
        const written = { ...versions[0]!, version: "f".repeat(32), tags };
        versions.push(written);
        return written;
      },
    };
    const target = azureTarget(async () => vault as VaultSecrets);
    await target.put("copy", "value", mark, await target.describe("copy", signal), signal);
    return (await target.describe("copy", signal)).holds === markId(mark);
  };
  expect([await recognizesOwnVersion(28), await recognizesOwnVersion(29)]).toEqual([true, false]);
});
