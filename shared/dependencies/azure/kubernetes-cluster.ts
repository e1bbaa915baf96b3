import * as z from "zod";
import { type Finder, propertiesOf, type Use, usesIn } from "./finder.ts";
import { unlessManagedHsm } from "./key-vault-names.ts";

const properties = z.object({
  securityProfile: z
    .object({ azureKeyVaultKms: z.object({ enabled: z.boolean().nullish(), keyId: z.string().nullish() }).nullish() })
    .nullish(),
  addonProfiles: z
    .object({
      azureKeyvaultSecretsProvider: z
        .object({
          enabled: z.boolean().nullish(),
          identity: z.object({ objectId: z.string().nullish() }).nullish(),
        })
        .nullish(),
    })
    .nullish(),
});

/**
 * Finds keys and vaults of Kubernetes clusters: the key that encrypts their secrets, and the vaults their add-on identity
 * may read. Which secrets pods mount is only known inside the cluster.
 *
 * subscription-reading.ts calls `find` for each cluster that Resource Graph returns. `blind` means that the service
 * can't observe when the resource loads a new version. `entitled` means that the identity may read the asset, but no use of it
 * was found.
 */
export const kubernetesCluster: Finder = {
  types: ["microsoft.containerservice/managedclusters"],
  kind: () => "kubernetesCluster",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  async find(row, { names, entitledTo }) {
    const { securityProfile, addonProfiles } = propertiesOf(row, properties);
    const kms = securityProfile?.azureKeyVaultKms;
    const provider = addonProfiles?.azureKeyvaultSecretsProvider;
    const objectId = provider?.enabled ? provider.identity?.objectId : undefined;
    const entitled = objectId ? await entitledTo(objectId) : [];
    const mayMount: Use[] = entitled
      .filter(({ asset }) => asset.type === undefined || asset.type === "secret")
      .map(({ asset, role }) => ({
        asset,
        evidence: `azureKeyvaultSecretsProvider/${role}`,
        refresh: { how: "blind" },
        strength: "entitled",
      }));
    const key = {
      evidence: "azureKeyVaultKms",
      text: kms?.enabled ? unlessManagedHsm(kms.keyId) : undefined,
      refresh: { how: "blind" } as const,
    };
    const { uses, failures } = usesIn(row, [key], names.ofUrl);
    return { uses: [...uses, ...mayMount], failures };
  },
};
