import * as z from "zod";
import type { ConsumerKind } from "../dependencies/edge.ts";
import { az } from "../platform/azure/cli.ts";
import { DAY_SECONDS, HOUR_SECONDS } from "../platform/time.ts";

/**
 * The kinds of Azure resources that encrypt data with a customer-managed key, and of which the service can read the version in use.
 * docs/key-rotation.md has the same table. To add a kind, discovery must find it first (shared/dependencies/azure).
 */

/** The key in the configuration of a resource. Addresses are `https://<vault>.<domain>/keys/<name>[/<version>]`. */
export interface KeyInUse {
  /** Address of the key, with the version in use if the resource reports it. Undefined if the resource uses no vault key. */
  keyUri: string | undefined;
  /** Whether the resource uses the newest version by itself. If false, a person must update the resource. */
  followsNewest: boolean;
}

/** Names that the command of a kind contains. */
export interface CommandNames {
  /** Name and resource group of the resource. */
  name: string;
  resourceGroup: string;
  /** Address of the vault without a slash at its end, its resource ID, and the name and the new version of the key. */
  vaultUri: string;
  vaultId: string;
  keyName: string;
  version: string;
}

export interface KeyConsumerKind {
  kind: ConsumerKind;
  /** Name in texts, such as `storage account`. */
  title: string;
  /** In lower case. */
  type: string;
  apiVersion: string;
  /** Path below the resource that has the key, or an empty text. */
  path: string;
  /** Path of the property that names the version in use. */
  property: string;
  /** Permission that reads it. */
  action: string;
  /** Returns the key of the `properties` in a response. */
  read: (properties: unknown) => KeyInUse;
  /** Time in seconds within which a resource that follows the newest version uses it, as Microsoft documents it. */
  pickUpSeconds: number;
  documentation: string;
  /** Returns the command that makes a pinned resource use the new version. */
  command: (names: CommandNames) => string;
}

const text = z.string().nullish();
const storage = z.object({
  encryption: z
    .object({
      keySource: text,
      keyvaultproperties: z
        .object({ keyname: text, keyversion: text, keyvaulturi: text, currentVersionedKeyIdentifier: text })
        .nullish(),
    })
    .nullish(),
});
const protector = z.object({ serverKeyType: z.string(), uri: text, autoRotationEnabled: z.boolean().nullish() });
const diskEncryptionSet = z.object({
  activeKey: z.object({ keyUrl: text }).nullish(),
  rotationToLatestKeyVersionEnabled: z.boolean().nullish(),
});
const cluster = z.object({
  securityProfile: z
    .object({ azureKeyVaultKms: z.object({ enabled: z.boolean().nullish(), keyId: text }).nullish() })
    .nullish(),
});

const keyUri = ({ vaultUri, keyName, version }: CommandNames): string => `${vaultUri}/keys/${keyName}/${version}`;

export const KEY_CONSUMER_KINDS: readonly KeyConsumerKind[] = [
  {
    kind: "storageAccount",
    title: "storage account",
    type: "microsoft.storage/storageaccounts",
    apiVersion: "2023-05-01",
    path: "",
    property: "encryption.keyvaultproperties.currentVersionedKeyIdentifier",
    action: "Microsoft.Storage/storageAccounts/read",
    read(properties) {
      const { encryption } = storage.parse(properties);
      const { keyname, keyversion, keyvaulturi, currentVersionedKeyIdentifier } = encryption?.keyvaultproperties ?? {};
      const isVaultKey = /^microsoft\.keyvault$/i.test(encryption?.keySource ?? "") && keyname && keyvaulturi;
      if (!isVaultKey) return { keyUri: undefined, followsNewest: false };
      const unversioned = `${keyvaulturi.replace(/\/+$/, "")}/keys/${keyname}`;
      // A pinned account uses the version that it names, whether or not it also reports the version in use.
      const named = keyversion ? `${unversioned}/${keyversion}` : undefined;
      return { keyUri: named ?? (currentVersionedKeyIdentifier || unversioned), followsNewest: named === undefined };
    },
    pickUpSeconds: DAY_SECONDS,
    documentation: "https://learn.microsoft.com/azure/storage/common/customer-managed-keys-overview",
    command: ({ name, resourceGroup, vaultUri, keyName, version }) =>
      az("storage account update", {
        name,
        "resource-group": resourceGroup,
        "encryption-key-source": "Microsoft.Keyvault",
        "encryption-key-vault": vaultUri,
        "encryption-key-name": keyName,
        "encryption-key-version": version,
      }),
  },
  {
    kind: "sqlServer",
    title: "SQL server",
    type: "microsoft.sql/servers",
    apiVersion: "2021-11-01",
    path: "/encryptionProtector/current",
    property: "uri",
    action: "Microsoft.Sql/servers/encryptionProtector/read",
    read(properties) {
      const { serverKeyType, uri, autoRotationEnabled } = protector.parse(properties);
      const isVaultKey = serverKeyType === "AzureKeyVault";
      return { keyUri: (isVaultKey && uri) || undefined, followsNewest: isVaultKey && autoRotationEnabled === true };
    },
    pickUpSeconds: DAY_SECONDS,
    documentation: "https://learn.microsoft.com/azure/azure-sql/database/transparent-data-encryption-byok-key-rotation",
    command: (names) => {
      const { name: server, resourceGroup } = names;
      const options = { server, "resource-group": resourceGroup, kid: keyUri(names) };
      // The key must be added to the server before it can protect the databases.
      return `${az("sql server key create", options)} && ${az("sql server tde-key set", {
        ...options,
        "server-key-type": "AzureKeyVault",
      })}`;
    },
  },
  {
    kind: "diskEncryptionSet",
    title: "disk encryption set",
    type: "microsoft.compute/diskencryptionsets",
    apiVersion: "2023-04-02",
    path: "",
    property: "activeKey.keyUrl",
    action: "Microsoft.Compute/diskEncryptionSets/read",
    read(properties) {
      const { activeKey, rotationToLatestKeyVersionEnabled } = diskEncryptionSet.parse(properties);
      return { keyUri: activeKey?.keyUrl || undefined, followsNewest: rotationToLatestKeyVersionEnabled === true };
    },
    pickUpSeconds: HOUR_SECONDS,
    documentation: "https://learn.microsoft.com/azure/virtual-machines/disk-encryption",
    command: (names) =>
      az("disk-encryption-set update", {
        name: names.name,
        "resource-group": names.resourceGroup,
        "key-url": keyUri(names),
        "source-vault": names.vaultId,
      }),
  },
  {
    kind: "kubernetesCluster",
    title: "Kubernetes cluster",
    type: "microsoft.containerservice/managedclusters",
    apiVersion: "2023-10-01",
    path: "",
    property: "securityProfile.azureKeyVaultKms.keyId",
    action: "Microsoft.ContainerService/managedClusters/read",
    read(properties) {
      const kms = cluster.parse(properties).securityProfile?.azureKeyVaultKms;
      return { keyUri: (kms?.enabled && kms.keyId) || undefined, followsNewest: false };
    },
    // A cluster never uses a new version by itself. A person has a day to run the command.
    pickUpSeconds: DAY_SECONDS,
    documentation: "https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption",
    command: (names) =>
      az("aks update", {
        name: names.name,
        "resource-group": names.resourceGroup,
        "enable-azure-keyvault-kms": "",
        "azure-keyvault-kms-key-id": keyUri(names),
      }),
  },
];

/** The kinds by the kind of consumer in dependencies. */
export const KEY_CONSUMER_KIND_OF: ReadonlyMap<ConsumerKind, KeyConsumerKind> = new Map(
  KEY_CONSUMER_KINDS.map((one) => [one.kind, one]),
);

/** Time in seconds that the service waits for a consumer of any other kind, of which it can't read the version in use. */
export const UNKNOWN_PICK_UP_SECONDS = DAY_SECONDS;
