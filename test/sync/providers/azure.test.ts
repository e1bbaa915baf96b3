import type { FaultAction } from "../../../infra/local/cloud/faults.ts";
import { createIdentity } from "../../../shared/azure/identity.ts";
import { createVaultSecrets } from "../../../shared/azure/vault-secrets.ts";
import { systemClock } from "../../../shared/runtime.ts";
import { providerDependencies } from "../../../shared/sync/providers/dependencies.ts";
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
    deps: providerDependencies(config, systemClock, async () => vault),
    freshName: () => `copy-${names++}`,
    badNames: ["", "a/b", "a_b", "x".repeat(128), "ä"],
    recovers: true,
    conditional: true,
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
