import * as z from "zod";
import { MINUTE_SECONDS } from "../../platform/time.ts";
import type { Refresh } from "../edge.ts";
import { type Finder, type Found, propertiesOf, type ResourceRow, usesIn } from "./finder.ts";
import type { KeyVaultNames } from "./key-vault-names.ts";

const text = z.string().nullish();
const properties = z.object({
  configuration: z.object({ secrets: z.array(z.object({ name: z.string(), keyVaultUrl: text })).nullish() }).nullish(),
});
const certificate = z.object({ certificateKeyVaultProperties: z.object({ keyVaultUrl: text }).nullish() });

/**
 * Finds references of container apps: secrets that come from a key vault. The platform reads them every half hour and then
 * restarts all active revisions: https://learn.microsoft.com/azure/container-apps/manage-secrets
 *
 * subscription-reading.ts calls `find` for each container app that Resource Graph returns. `blind` means that the service
 * can't observe when the resource loads a new version.
 */
export const containerApp: Finder = {
  types: ["microsoft.app/containerapps"],
  kind: () => "containerApp",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",
  find: (row, { names }) => secretsOf(row, names, { how: "automatic", slowestSeconds: 30 * MINUTE_SECONDS }),
};

/** Finds references of jobs. It is not documented when the next execution gets a new value. */
export const containerAppJob: Finder = {
  types: ["microsoft.app/jobs"],
  kind: () => "containerAppJob",
  properties: "namingVault",
  find: (row, { names }) => secretsOf(row, names, { how: "blind" }),
};

/** Finds certificates of Container Apps environments. It is not documented when a new version is read. */
export const containerAppsCertificate: Finder = {
  types: ["microsoft.app/managedenvironments/certificates"],
  kind: () => "containerAppsCertificate",
  properties: "namingVault",

  find(row, { names }) {
    const { certificateKeyVaultProperties } = propertiesOf(row, certificate);
    const evidence = "certificateKeyVaultProperties/keyVaultUrl";
    return usesIn(
      row,
      [{ evidence, text: certificateKeyVaultProperties?.keyVaultUrl, refresh: { how: "blind" } }],
      names.ofUrl,
    );
  },
};

function secretsOf(row: ResourceRow, names: KeyVaultNames, refresh: Refresh): Found {
  const secrets = propertiesOf(row, properties).configuration?.secrets ?? [];
  const locations = secrets.map(({ name, keyVaultUrl }) => ({
    evidence: `secrets/${name}`,
    text: keyVaultUrl,
    refresh,
  }));
  return usesIn(row, locations, names.ofUrl);
}
