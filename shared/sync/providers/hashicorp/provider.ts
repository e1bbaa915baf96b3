import { syncFailure } from "../failures.ts";
import type { ProviderDefinition } from "../provider.ts";
import { hashicorpClient } from "./client.ts";
import { HashicorpConfiguration, type HashicorpSecrets, type HashicorpSettings, mountOf } from "./configuration.ts";
import { pathProblem } from "./names.ts";
import { hashicorpTarget } from "./target.ts";

/**
 * HashiCorp Vault as a provider of sync targets: the KV version 2 secrets engine. `addressMembers` decide where the credentials
 * are sent, and `locationMembers` which target a name refers to. Targets store a mark, which shows their source version.
 */
export const hashicorp: ProviderDefinition<HashicorpSettings, HashicorpSecrets> = {
  id: "hashicorp",
  title: "HashiCorp Vault",
  configuration: HashicorpConfiguration,
  // Stored in the service's own key vault and never returned.
  secretMembers: ["token", "secretId"],
  // A change of these members requires the secrets again, so that they can't be sent to another server unnoticed.
  addressMembers: ["address", "namespace", "caCertificate", "authMount"],
  // Members that identify a target, together with the fields of the record. A change of one of them means another target.
  locationMembers: ["address", "namespace", "mount"],
  services: {
    // Entries of the smallest storage backend have at most 512 KiB. This limit leaves space for metadata.
    // https://developer.hashicorp.com/vault/docs/internals/limits
    kv: { nameProblem: pathProblem, maxBytes: 500_000, storesMark: true },
  },

  regionProblem: (region) => (region === undefined ? undefined : "is not taken: a Vault has no regions"),

  async check(settings, secrets, deps, signal) {
    const client = hashicorpClient(settings, secrets, deps);
    // Any permission below the mount is enough to read its type.
    const mount = mountOf(settings);
    const call = { operation: `inspect the mount ${mount}`, grant: `some right below ${mount}/` };
    const answer = await client.call("GET", `sys/internal/ui/mounts/${mount}`, call, undefined, signal);
    const { data } = (answer ?? {}) as { data?: { type?: unknown; options?: { version?: unknown } | null } };
    if (data?.type !== "kv" || data.options?.version !== "2") {
      const provider = `Vault at ${new URL(settings.address).host}`;
      throw syncFailure("notFound", { ...call, provider }, "it is no KV engine of version 2", {
        remedy: "Name the mount of a KV engine of version 2.",
      });
    }
  },

  open: (_to, settings, secrets, deps) => hashicorpTarget(settings, secrets, deps),
};
